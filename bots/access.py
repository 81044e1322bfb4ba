"""Access control: who may use the bot, and how many commands each may give, in chats, rooms and forms.

Each person may give so many commands a minute, and a room as a whole a few times as many. What a room says of its
occupants is only its word: who they are, and how many. So its guests share a budget, its owners and admins another one,
and each occupant has at most as much of it as a person.
"""

import hashlib
from collections.abc import Collection, Container, Mapping
from typing import Final

import msgspec

from bots.replies.conversation import NotAdmitted, TooFast
from bots.xmpp.events import MessageReceived
from service.model import UserId
from service.settings import WhoMayUse
from service.store.people.people import InvitationCodes
from service.store.people.users import Users, UserState

GUESTS: Final = 3
"""All of a room who may not change what it is told may together give as many commands as so many people."""
MANAGERS: Final = 3
"""The same for all owners and admins of a room."""
COMMAND: Final = {"command": 1}
FORM: Final = {"form": 1}
"""Forms that a person opens are counted apart from the commands that they stand for."""
_MINUTE_S: Final = 60.0


class Refused(msgspec.Struct, frozen=True):
    """Why a command is not executed: its sender exceeds the limit of this name, or, if it is "", is suspended."""

    limit: str
    reply: TooFast | NotAdmitted


class Access:
    """Decides whom to let in, and how often."""

    def __init__(
        self,
        users: Users,
        invites: InvitationCodes,
        who: WhoMayUse,
        listed: Collection[str],
        *,
        rooms: Container[str],
        per_minute: int,
    ) -> None:
        """Let in whom ``who`` says; ``listed`` are bare JIDs and domains, which are let in unless all are.

        ``rooms`` are let in: somebody who is let in has invited us there. A person has ``per_minute`` commands.
        """
        self._users = users
        self._rooms = rooms
        self._invites = invites
        self._who = who
        self._listed = frozenset(each.casefold() for each in listed)
        self._per_minute = per_minute

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return self._who == "open"

    async def admits(self, jid: str) -> bool:
        """Return whether a person may use the bot; bare JIDs alone decide. Raises StoreUnavailable."""
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

    async def check(self, jid: str, limits: Mapping[str, int], person: UserId = "") -> UserState | Refused:
        """Count a command under the names of ``limits``; return what is known of its sender, unless it is refused.

        A limit is so many people's. Whoever comes back to a room under many names is stopped by the limit that all
        like them share. ``person`` is who speaks in a room, "" if that is hidden. Raises StoreUnavailable.
        """
        if person and await self._users.suspended([person]):
            return Refused("", NotAdmitted())
        for name, people in limits.items():
            if not await self._users.allow(jid, name, people * self._per_minute, _MINUTE_S):
                return Refused(name, TooFast(self._per_minute))
        known = await self._users.get(jid)
        return Refused("", NotAdmitted()) if known.suspended else known


def limits_of(said: MessageReceived) -> dict[str, int]:
    """Return the limits for a message, by name."""
    if not said.occupant_id:
        return COMMAND
    who = hashlib.sha256(said.occupant_id.encode("utf-8", "replace")).hexdigest()[:16]
    return {f"command:{who}": 1} | ({"managers": MANAGERS} if said.can_manage else {"guests": GUESTS})
