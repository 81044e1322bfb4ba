"""How many commands people may give: each person so many a minute, and a room as a whole a few times as many.

What a room says of its occupants is only its word: who they are, and how many. So its guests share a budget, its owners
and admins another one, and each occupant has at most as much of it as a person.
"""

import hashlib
from typing import Final

from bots.link import Said
from service.store.users import Users

GUESTS: Final = 3
"""All of a room who may not change what it is told may together give as many commands as so many people."""
MANAGERS: Final = 3
"""The same for all owners and admins of a room."""
_MINUTE_S: Final = 60.0
_COMMAND: Final = "command"


async def exceeded_limit(users: Users, said: Said, per_minute: int) -> str:
    """Count a command; return the name of the counter that it exceeds, "" if it is not too much.

    Raises StoreUnavailable. Whoever comes back to a room under many names is stopped by what all like them share;
    guests take nothing from owners and admins.
    """
    for name in counters(said):
        people = {"guests": GUESTS, "managers": MANAGERS}.get(name, 1)
        if not await users.allow(said.jid, name, people * per_minute, _MINUTE_S):
            return name
    return ""


def counters(said: Said) -> tuple[str, ...]:
    """Return the names of the counters by which a command is counted."""
    if not said.occupant:
        return (_COMMAND,)
    who = hashlib.sha256(said.occupant.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{_COMMAND}:{who}", "managers" if said.may_change else "guests"


async def may_command(users: Users, jid: str, per_minute: int) -> bool:
    """Count a person's command, by text or by form; return whether it is not too much. Raises StoreUnavailable."""
    return await users.allow(jid, _COMMAND, per_minute, _MINUTE_S)


async def may_open_form(users: Users, jid: str, per_minute: int) -> bool:
    """Count a form that a person opens; return whether it is not too much. Raises StoreUnavailable."""
    return await users.allow(jid, "form", per_minute, _MINUTE_S)
