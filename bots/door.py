"""Who may talk to the bot: everybody, those whom its admin listed, or those with an invitation."""

from collections.abc import Collection, Container

from service.settings import WhoMayUse
from service.store.invites import Invites


class Door:
    """Knows whom to let in. Bare JIDs alone decide."""

    def __init__(
        self, invites: Invites, who: WhoMayUse, listed: Collection[str], rooms: Container[str] = frozenset()
    ) -> None:
        """Let in whom ``who`` says; ``listed`` are bare JIDs and domains, which are let in unless all are.

        ``rooms`` are let in: somebody who is let in has invited us there.
        """
        self._rooms = rooms
        self._invites = invites
        self._who = who
        self._listed = frozenset(each.casefold() for each in listed)

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return self._who == "open"

    async def admits(self, jid: str) -> bool:
        """Return whether a person may use the bot. Raises StoreUnavailable."""
        if self._who == "open" or jid in self._rooms or self._is_listed(jid):
            return True
        return self._who == "invited" and await self._invites.is_guest(jid)

    async def accept(self, jid: str, code: str) -> bool:
        """Return whether a person may use the bot with this code. Raises StoreUnavailable."""
        if self._who == "open" or self._is_listed(jid):
            return True
        return self._who == "invited" and await self._invites.accept(jid, code)

    def _is_listed(self, jid: str) -> bool:
        return not self._listed.isdisjoint((jid.casefold(), jid.rpartition("@")[2].casefold()))
