"""Access control: who may use the bot, the limits of each user, and rate limits in chats, rooms and forms.

A user may send a number of commands per minute, and a room as a whole a small multiple of it. The bot knows the
occupants of a room only from the room's statements, which may be false. Therefore the guests of a room share one limit,
its owners and admins share another limit, and the limit of each occupant is at most that of a user.
"""

import hashlib
from collections.abc import Collection, Container, Mapping
from typing import Final

import msgspec

from bots.replies.conversation import AccessDenied, TooManyCommands
from bots.xmpp.events import MessageReceived
from service.model import UserId
from service.settings import WhoMayUse
from service.store.people.invitations import InvitationCodes
from service.store.people.users import Users, UserState

GUESTS_FACTOR: Final = 3
"""All occupants of a room who are not its owners or admins may together send as many commands as this many users."""
MANAGERS_FACTOR: Final = 3
"""The owners and admins of a room may together send as many commands as this many users."""
COMMAND_LIMITS: Final = {"command": 1}
FORM_LIMITS: Final = {"form": 1}
"""Opening a form is counted separately from the command that it stands for."""
_WINDOW_S: Final = 60.0


class UserLimits(msgspec.Struct, frozen=True):
    """Limits of one user; a channel with at least ``public_from_subscribers`` subscribers is public.

    ``watches`` is the maximum number of saved searches.
    """

    subscriptions: int
    new_urls_per_hour: int
    commands_per_minute: int
    watches: int
    public_from_subscribers: int

    def of(self, max_subscriptions: int | None) -> "UserLimits":
        """Return these limits with the maximum number of subscriptions set by an admin; None keeps the default."""
        if max_subscriptions is None:
            return self
        return msgspec.structs.replace(self, subscriptions=max_subscriptions)


class CommandRefused(msgspec.Struct, frozen=True):
    """The refusal of a command.

    ``limit`` is the name of the rate limit that the sender exceeded; "" means that the sender is suspended. ``reply``
    is the bot's answer.
    """

    limit: str
    reply: TooManyCommands | AccessDenied


class Access:
    """Decides who may use the bot, and enforces the rate limits."""

    def __init__(
        self,
        users: Users,
        invitations: InvitationCodes,
        who: WhoMayUse,
        allowed: Collection[str],
        *,
        rooms: Container[str],
        per_minute: int,
    ) -> None:
        """Create the access control with the policy ``who``.

        The policy states who may use the bot: everybody, only ``allowed`` users, or these and invited users.
        ``allowed`` are the bare JIDs and domains that may use the bot under every policy. ``rooms`` are the rooms that
        the bot has joined; they may use it, because a user with access has invited the bot. A user may send
        ``per_minute`` commands a minute.
        """
        self._users = users
        self._invitations = invitations
        self._who = who
        self._allowed = frozenset(each.casefold() for each in allowed)
        self._rooms = rooms
        self._per_minute = per_minute

    @property
    def is_open(self) -> bool:
        """Whether everybody may use the bot."""
        return self._who == "open"

    async def has_access(self, jid: str) -> bool:
        """Return whether the user with this bare JID may use the bot. Raises StoreUnavailable."""
        if self._who == "open" or jid in self._rooms or self._is_allowed(jid):
            return True
        return self._who == "invited" and await self._invitations.is_guest(jid)

    async def redeem_code(self, jid: str, code: str) -> bool:
        """Redeem an invitation code for the user with this bare JID; return whether the user may now use the bot.

        Raises StoreUnavailable.
        """
        if self._who == "open" or self._is_allowed(jid):
            return True
        return self._who == "invited" and await self._invitations.accept(jid, code)

    def _is_allowed(self, jid: str) -> bool:
        return not self._allowed.isdisjoint((jid.casefold(), jid.rpartition("@")[2].casefold()))

    async def count_command(
        self, jid: str, limits: Mapping[str, int], occupant_user_id: UserId = ""
    ) -> UserState | CommandRefused:
        """Count a command against rate limits; return the state of its sender, or the reason why it is refused.

        ``jid`` is the bare JID of the sender, or of the room in which the command was sent. ``limits`` maps the name of
        each rate limit to a factor, by which the limit of one user is multiplied. A room has a limit that its occupants
        share, which also stops an occupant who joins again under many nicks. ``occupant_user_id`` is the user id of the
        sender in a room that shows JIDs, else "". Raises StoreUnavailable.
        """
        if occupant_user_id and await self._users.suspended_users([occupant_user_id]):
            return CommandRefused("", AccessDenied())
        for name, factor in limits.items():
            if not await self._users.count_use(jid, name, factor * self._per_minute, _WINDOW_S):
                return CommandRefused(name, TooManyCommands(self._per_minute))
        state = await self._users.get(jid)
        return CommandRefused("", AccessDenied()) if state.suspended else state


def message_limits(message: MessageReceived) -> dict[str, int]:
    """Return the rate limits that apply to a message, in the form that :meth:`Access.count_command` accepts."""
    if not message.occupant_id:
        return COMMAND_LIMITS
    occupant = hashlib.sha256(message.occupant_id.encode("utf-8", "replace")).hexdigest()[:16]
    shared = {"managers": MANAGERS_FACTOR} if message.can_manage else {"guests": GUESTS_FACTOR}
    return {f"command:{occupant}": 1} | shared
