"""Access control: decides who may use the bot, and redeems invitation codes."""

from collections.abc import Container

from service.settings import Settings
from service.store import Store


class AccessControl:
    """Decides who may use the bot."""

    def __init__(self, store: Store, settings: Settings, rooms: Container[str]) -> None:
        """Create the access control of a bot.

        ``settings.who_may_use`` states who may use the bot: everybody; only ``settings.allowed_users`` (bare JIDs and
        domains); or the allowed users and everyone who has redeemed an invitation code. ``rooms`` are the rooms that
        the bot has joined. These rooms may use the bot too, because the bot joins a room only when a user with access
        invites it.
        """
        self._invitations = store.invitations
        self._who = settings.who_may_use
        self._allowed = frozenset(each.casefold() for each in settings.allowed_users)
        self._rooms = rooms

    @property
    def is_open(self) -> bool:
        """Whether everybody may use the bot, without being on a list or redeeming an invitation code."""
        return self._who == "open"

    async def has_access(self, jid: str) -> bool:
        """Return whether the user or room with this bare JID may use the bot.

        Raises StoreUnavailable if the store does not respond.
        """
        if self._who == "open" or jid in self._rooms or self._is_allowed(jid):
            return True
        return self._who == "invited" and await self._invitations.is_guest(jid)

    async def redeem_code(self, jid: str, code: str) -> bool:
        """Redeem an invitation code for the user with this bare JID; return whether the user may now use the bot.

        Raises StoreUnavailable if the store does not respond.
        """
        if self._who == "open" or self._is_allowed(jid):
            return True
        return self._who == "invited" and await self._invitations.accept(jid, code)

    def _is_allowed(self, jid: str) -> bool:
        return not self._allowed.isdisjoint((jid.casefold(), jid.rpartition("@")[2].casefold()))
