"""Division of work among bot processes: each process holds some numbered partitions for a limited time.

A process renews its lease once a second, by Redis's clock. It gets free partitions up to its fair share. If it has
more, it releases some when their work is finished. The partitions of a failed process become free only after another
process has recovered its work and called :meth:`PartitionLeases.release_failed`.
"""

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository


class FailedProcess(msgspec.Struct, frozen=True):
    """A failed process whose work no other process has recovered yet.

    ``holder`` is its id. ``lease_ended_s`` is when its lease ended (Unix s, Redis's clock).
    """

    holder: str
    lease_ended_s: float


class PartitionHeartbeat(msgspec.Struct, frozen=True):
    """Reply to a process that has renewed its lease of partitions.

    - ``partitions``: the partitions that the process holds.
    - ``max_partitions``: the maximum number of partitions that it may hold: its fair share.
    - ``failed``: failed processes whose work it has to recover.
    """

    partitions: frozenset[int]
    max_partitions: int
    failed: tuple[FailedProcess, ...]


class PartitionLeases(RedisRepository):
    """Leases of processes that share a named set of numbered partitions. Every method may raise StoreUnavailable."""

    async def heartbeat(
        self, name: str, holder: str, partition_count: int, ttl_s: float, released: frozenset[int] = frozenset()
    ) -> PartitionHeartbeat:
        """Renew the lease of a process, and return the partitions that it holds.

        - ``name``: name of the set of partitions.
        - ``holder``: the process.
        - ``partition_count``: number of partitions in the set.
        - ``ttl_s``: duration of the lease in seconds.
        - ``released``: partitions that the process gives up.
        """
        reply = await self._redis.run_urgent_script(
            "partitions_heartbeat",
            keys.partition_leases(name),
            holder,
            int(ttl_s * 1000),
            partition_count,
            " ".join(map(str, sorted(released))),
        )
        mine, most, dead, recoverer = reply
        found = (FailedProcess(dead[i].decode(), float(dead[i + 1]) / 1000) for i in range(0, len(dead), 2))
        return PartitionHeartbeat(frozenset(mine), most, tuple(found) if recoverer.decode() == holder else ())

    async def release_failed(self, name: str, holder: str) -> bool:
        """Release the partitions of the failed process ``holder``; return False if its lease is still valid."""
        return bool(await self._redis.run_script("partitions_release", keys.partition_leases(name), holder, "dead"))

    async def release(self, name: str, holder: str) -> None:
        """Release the partitions of the process ``holder``, which is shutting down."""
        await self._redis.run_script("partitions_release", keys.partition_leases(name), holder)
