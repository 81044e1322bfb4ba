"""How many commands people may give: each person so many a minute, and in a room nobody at others' cost."""

import hashlib
from typing import Final

from bots.link import Said
from service.store.users import Users

GUESTS: Final = 3
"""All of a room who may not change what it is told may together give as many commands as so many people."""
_MINUTE_S: Final = 60.0


async def may_command(users: Users, said: Said, per_minute: int) -> bool:
    """Return whether this is not too much, and count it. Raises StoreUnavailable.

    In a room each occupant has as much as a person; whoever comes back under many names is stopped by what all guests
    have together, and that does not touch its owners and admins.
    """
    if not said.occupant:
        return await users.allow(said.jid, "command", per_minute, _MINUTE_S)
    who = hashlib.sha256(said.occupant.encode("utf-8", "replace")).hexdigest()[:16]
    if not await users.allow(said.jid, f"command:{who}", per_minute, _MINUTE_S):
        return False
    return said.may_change or await users.allow(said.jid, "guests", GUESTS * per_minute, _MINUTE_S)
