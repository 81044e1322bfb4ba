"""Rate limits on commands in chats, rooms and forms.

A user may send a limited number of commands per minute, and all occupants of a room together a small multiple of this
number. The bot knows the occupants of a room only from the room's statements, which may be false. A room could invent
occupants to get around limits on single occupants. Therefore the guests of a room share one limit, and its owners and
admins share another limit. In addition, no single occupant may exceed the limit of a user.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from cachetools import LRUCache

from bots.access_control import AccessControl
from bots.i18n.translator import Translator
from bots.replies.greetings_and_refusals import ACCESS_DENIED, too_many_commands_text
from bots.xmpp.events import MessageReceived
from service.model import UserId
from service.settings import Settings
from service.store import Store
from service.store.people.users import UserState

GUESTS_FACTOR: Final = 3
"""Limit of all guests of a room together, as a multiple of the limit of a user. Guests are the occupants who are not
owners or admins."""
MANAGERS_FACTOR: Final = 3
"""Limit of all owners and admins of a room together, as a multiple of the limit of a user."""
COMMAND_LIMITS: Final = {"command": 1}
FORM_LIMITS: Final = {"form": 1}
"""Rate limits that apply when a form is opened: name and factor, as in :meth:`CommandRateLimiter.count_command`. The
commands that are executed through a form count towards the limit on commands."""
_WINDOW_S: Final = 60.0
_MAX_NOTIFIED: Final = 10_000


class CommandPermission(msgspec.Struct, frozen=True):
    """The permission to execute a command; ``user`` is the stored state of the sender.

    If ``is_admitted`` is false, the sender has no access to the bot, and may execute only a few commands such as
    `help`.
    """

    user: UserState
    is_admitted: bool


class CommandRefused(msgspec.Struct, frozen=True):
    """The refusal of a command.

    ``limit`` is the name of the rate limit that the sender exceeded; "" means that the sender is suspended.
    """

    limit: str
    per_minute: int

    def text(self, translator: Translator) -> str:
        """Return the reply to the sender in the language of ``translator``."""
        if self.limit:
            return too_many_commands_text(self.per_minute, translator)
        return translator.gettext(ACCESS_DENIED)


class CommandRateLimiter:
    """Counts the commands of users and rooms, and refuses those beyond the limits."""

    def __init__(self, store: Store, settings: Settings, access: AccessControl) -> None:
        """Create a limiter that counts in ``store``; ``access`` decides who may use the bot."""
        self._users = store.users
        self._access = access
        self._per_minute = settings.max_commands_per_minute

    async def count_command(
        self, jid: str, limits: Mapping[str, int], occupant_user_id: UserId = ""
    ) -> CommandPermission | CommandRefused:
        """Count a command against rate limits; return the permission to execute it, or the reason why it is refused.

        ``jid`` is the bare JID of the sender, or of the room in which the command was sent. ``limits`` maps names of
        rate limits to factors. Each limit allows as many commands per minute as a single user may send, times its
        factor. Occupants of a room share a limit, which also stops an occupant who joins again under many nicks.
        ``occupant_user_id`` is the user id of the sender in a room that shows JIDs, else "". Raises StoreUnavailable if
        the store does not respond.
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
    """Decides which refused commands get a reply: the first one beyond each rate limit, in each session."""

    def __init__(self) -> None:
        """Create an object that has not recorded any refused commands yet."""
        self._notified: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_NOTIFIED)
        """The pairs (session, rate limit) for which a notice was sent."""

    def text(self, session: str, refused: CommandRefused, translator: Translator) -> str:
        """Return the reply to a refused command of a session; "" if the command gets no reply.

        Only the first command beyond a rate limit gets a reply. Suspended users get none.
        """
        if not refused.limit or (session, refused.limit) in self._notified:
            return ""
        self._notified[session, refused.limit] = True
        return refused.text(translator)

    def on_permitted(self, session: str, limits: Iterable[str]) -> None:
        """Record that a command of a session was within ``limits``.

        After that, the next command of the session beyond one of these limits gets a reply again.
        """
        for name in limits:
            self._notified.pop((session, name), None)


def message_limits(message: MessageReceived) -> dict[str, int]:
    """Return the names of the rate limits that apply to ``message``, with the factor of each.

    A limit allows as many commands per minute as a single user may send, times its factor. In a room, one limit is for
    the sender, and another is shared by all guests, or by all owners and admins.
    """
    if not message.occupant_id:
        return COMMAND_LIMITS
    occupant = hashlib.sha256(message.occupant_id.encode("utf-8", "replace")).hexdigest()[:16]
    shared = {"managers": MANAGERS_FACTOR} if message.can_manage else {"guests": GUESTS_FACTOR}
    return {f"command:{occupant}": 1} | shared
