"""What admins want of the fleet, where every node reads it, and what they wanted before."""

import msgspec

from service.corona.policy import Aims
from service.store import keys
from service.store.link import Part

REVISIONS_KEPT = 100


class Revision(msgspec.Struct, frozen=True):
    """One change of the aims: the ``number``-th, when (Unix s), by whom; ``aims`` None for those of the settings."""

    number: int
    at_s: float
    by: str
    aims: Aims | None


class _Written(msgspec.Struct, frozen=True):
    """A revision as the script writes it: the aims are JSON within JSON."""

    number: int
    at_s: float
    by: str
    aims: str | None


class PolicyStore(Part):
    """The fleet's aims. Without any, each node has those of its settings."""

    async def get(self) -> Aims | None:
        """Return what was set last; None if nothing was."""
        raw = await self._link.call("GET", keys.AIMS)
        return msgspec.json.decode(raw, type=Aims) if raw else None

    async def set(self, aims: Aims | None, *, by: str = "", seen: int | None = None) -> bool:
        """Have every node aim at this, or (None) at what its settings say, from its next maintenance interval on.

        ``seen`` is the number of the revision that this was decided upon: False if there is a later one, which then
        stays.
        """
        return bool(
            await self._link.script(
                "policy_set",
                (keys.AIMS, keys.AIMS_HISTORY, keys.AIMS_REVISION),
                "" if seen is None else seen,
                b"" if aims is None else msgspec.json.encode(aims),
                by,
                REVISIONS_KEPT,
            )
        )

    async def history(self) -> list[Revision]:
        """Return the last revisions, newest first."""
        return [_revision(raw) for raw in await self._link.call("LRANGE", keys.AIMS_HISTORY, 0, -1)]


def _revision(raw: bytes) -> Revision:
    written = msgspec.json.decode(raw, type=_Written)
    aims = None if written.aims is None else msgspec.json.decode(written.aims, type=Aims)
    return Revision(written.number, written.at_s, written.by, aims)
