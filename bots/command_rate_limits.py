"""Rate limits on commands in chats, rooms and forms.

A user may send a limited number of commands per minute. All occupants of a room together may send a small multiple of
that. The bot learns who is in a room only from the room's server, which may lie: it could invent occupants to get
around a limit per occupant. Therefore all guests of a room share one limit, and its owners and admins share another. In
addition, each occupant has the limit of a single user.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from cachetools import LRUCache

from bots.access_control import AccessControl
from bots.i18n.translator import Translator
from bots.replies.greetings_and_refusals import SUSPENDED, too_many_commands_text
from bots.xmpp.events import MessageReceived
from service.model import UserId
from service.settings import Settings
from service.store import Store
from service.store.people.users import UserState

GUESTS_FACTOR: Final = 3
"""The limit shared by all guests of a room is this factor times the limit of a user. Guests are the occupants who are
neither owners nor admins."""
MANAGERS_FACTOR: Final = 3
"""The limit shared by all owners and admins of a room is this factor times the limit of a user."""
COMMAND_LIMITS: Final = {"command": 1}
FORM_LIMITS: Final = {"form": 1}
"""The rate limits that apply when a form is opened: the name and factor of each, as in
:meth:`CommandRateLimiter.count_command`. The commands that are executed through a form count towards the limit on
commands."""
_WINDOW_S: Final = 60.0
_MAX_NOTIFIED: Final = 10_000


class CommandPermission(msgspec.Struct, frozen=True):
    """The permission to execute a command.

    ``user`` is the stored state of the sender. If ``is_admitted`` is false, the sender has no access to the bot, and
    may only redeem an invitation code.
    """

    user: UserState
    is_admitted: bool


class CommandRefused(msgspec.Struct, frozen=True):
    """The refusal of a command.

    ``limit`` is the name of the rate limit that the sender exceeded; "" means that the sender is suspended.
    ``per_minute`` is the number of commands that a user may send per minute.
    """

    limit: str
    per_minute: int

    def text(self, translator: Translator) -> str:
        """Return the message that tells the sender why the command was refused, in the language of ``translator``."""
        if self.limit:
            return too_many_commands_text(self.per_minute, translator)
        return translator.gettext(SUSPENDED)


class CommandRateLimiter:
    """Counts the commands of users and rooms, and refuses those that exceed a limit."""

    def __init__(self, store: Store, settings: Settings, access: AccessControl) -> None:
        """Create a limiter that keeps its counts in ``store``; ``access`` decides who may use the bot."""
        self._users = store.users
        self._access = access
        self._per_minute = settings.max_commands_per_minute

    async def count_command(
        self, jid: str, limits: Mapping[str, int], occupant_user_id: UserId = ""
    ) -> CommandPermission | CommandRefused:
        """Count a command against rate limits; return the permission to execute it, or the reason why it is refused.

        - ``jid``: the bare JID of the sender, or of the room in which the command was sent.
        - ``limits``: the rate limits to apply, as a mapping from their names to their factors. A limit with factor n
          allows n times as many commands per minute as a single user may send.
        - ``occupant_user_id``: the user id of the sender in a room that shows JIDs, else "".

        In a room, ``limits`` must contain a limit that several occupants share, so that changing nicks does not
        circumvent it. Raises StoreUnavailable if the store does not respond.
        """
        if occupant_user_id and await self._users.suspended_users([occupant_user_id]):
            return CommandRefused("", self._per_minute)
        for name, factor in limits.items():
            if not await self._users.count_use(jid, name, factor * self._per_minute, _WINDOW_S):
                return CommandRefused(name, self._per_minute)
        state = await self._users.get(jid)
        if state.suspended:
            return CommandRefused("", self._per_minute)
        return CommandPermission(state, await self._access.has_access(jid))


class RefusalNotices:
    """Decides which refused commands get a reply.

    In each session, the first command that exceeds a rate limit gets a reply. Further commands that exceed the
    same limit get no reply, until a command has been within the limit again.
    """

    def __init__(self) -> None:
        """Create an instance without any recorded refusals."""
        self._notified: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_NOTIFIED)
        """The pairs (session, rate limit) for which a refusal has been sent since the last permitted command."""

    def text(self, session: str, refused: CommandRefused, translator: Translator) -> str:
        """Return the reply to a refused command in this session, or "" if the command gets no reply.

        After a command has exceeded a rate limit, further commands that exceed the same limit get no reply until
        :meth:`on_permitted` is called for the limit. Suspended users get no reply.
        """
        if not refused.limit or (session, refused.limit) in self._notified:
            return ""
        self._notified[session, refused.limit] = True
        return refused.text(translator)

    def on_permitted(self, session: str, limits: Iterable[str]) -> None:
        """Record that a command in this session was within ``limits``.

        The next command in the session that exceeds one of these limits gets a reply again.
        """
        for name in limits:
            self._notified.pop((session, name), None)


def message_limits(message: MessageReceived) -> dict[str, int]:
    """Return the rate limits that apply to ``message``, as a mapping from the name of each limit to its factor.

    A limit with factor n allows n times as many commands per minute as a single user may send. In a room, one limit is
    for the sender. Another limit is shared either by all guests or by all owners and admins.
    """
    if not message.occupant_id:
        return COMMAND_LIMITS
    occupant = hashlib.sha256(message.occupant_id.encode("utf-8", "replace")).hexdigest()[:16]
    shared = {"managers": MANAGERS_FACTOR} if message.can_manage else {"guests": GUESTS_FACTOR}
    return {f"command:{occupant}": 1} | shared
