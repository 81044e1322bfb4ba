"""What admins want of the fleet, where every node reads it."""

import msgspec

from service.corona.policy import Aims
from service.store import keys
from service.store.link import Link


class PolicyStore:
    """The fleet's aims. Without any, each node has those of its settings."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def get(self) -> Aims | None:
        """Return what was set last; None if nothing was, or not by this version of Coronet."""
        raw = await self._link.call("GET", keys.AIMS)
        try:
            return msgspec.json.decode(raw, type=Aims) if raw else None
        except msgspec.MsgspecError:
            return None

    async def set(self, aims: Aims) -> None:
        """Have every node aim at this from its next maintenance interval on."""
        await self._link.call("SET", keys.AIMS, msgspec.json.encode(aims))
