"""The fleet policy that admins have set, and its earlier revisions.

The policy determines how often workers poll channels. Every worker reads the present policy.
"""

import msgspec

from service.corona.fleet_policy import FleetObjective
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_REVISIONS = 100


class Revision(msgspec.Struct, frozen=True):
    """One change of the fleet policy, which determines how often workers poll channels.

    - ``number``: sequence number of the change.
    - ``at_s``: time of the change (Unix s).
    - ``by``: the admin who made the change.
    - ``aims``: the new policy; None if each worker is to use the policy in its own settings again.
    """

    number: int
    at_s: float
    by: str
    aims: FleetObjective | None


class FleetPolicyStore(RedisRepository):
    """Reads and sets the fleet policy. If admins have set none, each worker uses the policy in its own settings."""

    async def get(self) -> FleetObjective | None:
        """Return the policy that an admin last set; None if each worker uses the policy in its own settings."""
        raw = await self._redis.call("GET", keys.FLEET_POLICY)
        return msgspec.json.decode(raw, type=FleetObjective) if raw else None

    async def set(self, objective: FleetObjective | None, *, by: str = "", seen: int | None = None) -> bool:
        """Set the policy of all workers; return False if it has changed since the caller read it.

        - ``objective``: the policy; None if each worker is to use the policy in its own settings.
        - ``by``: the admin's name.
        - ``seen``: sequence number of the last change that the caller has read. If there was a later change, the policy
          is not set. If ``seen`` is None, the policy is set in any case.

        Workers apply the policy at their next maintenance interval.
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
        """Return the last ``MAX_REVISIONS`` revisions of the policy, newest first."""
        return [_parse_revision(raw) for raw in await self._redis.call("LRANGE", keys.FLEET_POLICY_HISTORY, 0, -1)]


def _parse_revision(raw: bytes) -> Revision:
    fields = msgspec.json.decode(raw)
    aims = fields["aims"]  # JSON within the JSON
    return msgspec.convert(fields | {"aims": aims and msgspec.json.decode(aims)}, Revision)
