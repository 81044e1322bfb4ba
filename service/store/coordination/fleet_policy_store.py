"""The fleet policy, as admins set it, with its earlier values. Every worker reads the present policy."""

import msgspec

from service.corona.fleet_policy import FleetObjective
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_REVISIONS = 100


class Revision(msgspec.Struct, frozen=True):
    """One change of the fleet policy: its number, its time (Unix s), and the admin who made it.

    ``aims`` is the new policy; None means that each worker applies the policy in its settings again.
    """

    number: int
    at_s: float
    by: str
    aims: FleetObjective | None


class FleetPolicyStore(RedisRepository):
    """The fleet policy that admins set. If none is set, each worker uses the policy in its settings."""

    async def get(self) -> FleetObjective | None:
        """Return the policy that admins set last; None if the policy in the settings applies."""
        raw = await self._redis.call("GET", keys.FLEET_POLICY)
        return msgspec.json.decode(raw, type=FleetObjective) if raw else None

    async def set(self, objective: FleetObjective | None, *, by: str = "", seen: int | None = None) -> bool:
        """Set the policy that all workers apply from their next maintenance interval on.

        If ``objective`` is None, each worker applies the policy in its settings again. ``by`` is the admin's name.
        ``seen`` is the number of the last revision that the caller has read. If there is a later revision, nothing
        changes, and the result is False. If ``seen`` is None, this is not checked.
        """
        return bool(
            await self._redis.run_script(
                "policy_set",
                (keys.FLEET_POLICY, keys.FLEET_POLICY_HISTORY, keys.FLEET_POLICY_REVISION),
                "" if seen is None else seen,
                b"" if objective is None else msgspec.json.encode(objective),
                by,
                MAX_REVISIONS,
            )
        )

    async def history(self) -> list[Revision]:
        """Return the last ``MAX_REVISIONS`` revisions, newest first."""
        return [_parse_revision(raw) for raw in await self._redis.call("LRANGE", keys.FLEET_POLICY_HISTORY, 0, -1)]


def _parse_revision(raw: bytes) -> Revision:
    fields = msgspec.json.decode(raw)
    aims = fields["aims"]  # JSON within the JSON
    return msgspec.convert(fields | {"aims": aims and msgspec.json.decode(aims)}, Revision)
