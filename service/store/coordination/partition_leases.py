"""Division of work among bot processes, each of which holds some partitions of the work for a limited time.

The work is divided into numbered partitions. Each process has a *lease*, which it renews once a second, timed by
Redis's clock. With each renewal, the process gets free partitions until it holds its fair share. If it holds more than
that, it releases partitions as soon as their work is finished.

If a process fails, its lease ends, but its partitions stay reserved. Another process first recovers the failed
process's work, and then frees the partitions by calling :meth:`PartitionLeases.release_failed`.
"""

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository


class FailedProcess(msgspec.Struct, frozen=True):
    """A failed process whose work still has to be recovered by another process.

    - ``holder``: id of the failed process.
    - ``lease_ended_s``: when its lease ended (Unix s, Redis's clock).
    """

    holder: str
    lease_ended_s: float


class PartitionHeartbeat(msgspec.Struct, frozen=True):
    """The reply to a process that has renewed its lease.

    - ``partitions``: the partitions (numbered parts of the shared work) that the process holds.
    - ``max_partitions``: the maximum number of partitions that the process may hold, which is its fair share.
    - ``failed``: failed processes whose work this process has to recover.
    """

    partitions: frozenset[int]
    max_partitions: int
    failed: tuple[FailedProcess, ...]


class PartitionLeases(RedisRepository):
    """Divides work among several processes. The work consists of numbered partitions.

    Each process holds some of the partitions, and renews its lease regularly. If the lease ends, another process
    recovers the work in these partitions.

    Every method may raise :class:`StoreUnavailable`.
    """

    async def heartbeat(
        self, name: str, holder: str, partition_count: int, ttl_s: float, released: frozenset[int] = frozenset()
    ) -> PartitionHeartbeat:
        """Renew the lease of a process; return its partitions, and the failed processes whose work it has to recover.

        - ``name``: name of the set of partitions that the process shares with others.
        - ``holder``: id of the process.
        - ``partition_count``: number of partitions in the set. A partition is a numbered part of the work.
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
        """Free the partitions of the failed process ``holder``; return False if its lease is still valid."""
        return bool(await self._redis.run_script("partitions_release", keys.partition_leases(name), holder, "dead"))

    async def release(self, name: str, holder: str) -> None:
        """Free the partitions of the process ``holder``, which is shutting down."""
        await self._redis.run_script("partitions_release", keys.partition_leases(name), holder)
