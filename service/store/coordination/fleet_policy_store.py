"""The fleet policy, as admins set it, with its earlier values. Every worker reads the present policy."""

import msgspec

from service.corona.fleet_policy import FleetObjective
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_REVISIONS = 100


class Revision(msgspec.Struct, frozen=True):
    """One change of the fleet policy, from which all workers compute how often they poll.

    - ``aims``: the new policy; None if each worker is to use the policy in its settings again.
    - the other fields: number of the change, its time (Unix s), and the admin who made it.
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
        """Set the policy of all workers; return False if it has changed since the caller read it.

        - ``objective``: the policy; None if each worker is to use the policy in its settings.
        - ``by``: the admin's name.
        - ``seen``: number of the last change that the caller has read. If there is a later change, nothing is done.
          None to set the policy in any case.

        Workers apply the policy from their next maintenance interval on.
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
