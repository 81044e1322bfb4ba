"""Processes and their leases, on Redis's clock alone: the ring of workers, and the partitions that bots share.

A bot process renews its lease once a second. It is given free partitions up to its fair share, and gives back what it
has above that when it has finished with them. The partitions of a failed process are free only after another process
has recovered its work and *buried* it.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from service.errors import LeaseLost, StoreUnavailable
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from service.store.client import keys
from service.store.client.connection import RedisRepository, script_command

_RING = (keys.RING_NODES, keys.RING_LEASES, keys.RING_VERSION)
_JOIN_TRIES = 100
_NONE_KNOWN = -1
_WAITING_SEEN_WITHIN_S = 30.0


class Heartbeat(msgspec.Struct, frozen=True):
    """What a heartbeat brought: the ring, when it was news.

    ``time_s`` is Redis's clock (Unix s) when it answered: the fleet's common time.
    ``expired`` are the nodes whose leases this very beat found to have run out.
    """

    time_s: float
    ring: RingView | None
    expired: tuple[NodeId, ...]


class Ring(RedisRepository):
    """Join, stay in, and leave the ring; look at it."""

    async def join(
        self,
        name: str,
        metrics_url: str,
        ttl_s: float,
        choose: Callable[[Sequence[NodeId]], NodeId],
        process: str = "",
    ) -> NodeInfo:
        """Take the id that ``choose`` picks given the present ids, atomically, and a lease of ``ttl_s``.

        Raises :class:`LeaseLost` if others keep joining in between, :class:`StoreUnavailable`.
        """
        for _ in range(_JOIN_TRIES):
            time_s, seen = await self.time_and_view()
            node = choose([info.id for info in seen.nodes])
            info = NodeInfo(id=node, epoch=0, name=name, joined_s=time_s, metrics_url=metrics_url, process=process)
            value = msgspec.json.encode(info)
            reply = await self._redis.run_script(
                "ring_join", (*_RING, keys.RING_EPOCH), seen.version, node, value, int(ttl_s * 1000)
            )
            if reply[0] == 1:
                return msgspec.structs.replace(info, epoch=reply[1])
        raise LeaseLost("Could not join the ring: others joined or left at every try. Start this worker again.")

    async def heartbeat(self, me: NodeInfo, ttl_s: float, known_version: int) -> Heartbeat:
        """Renew the lease. Raises :class:`LeaseLost` when it is no longer ours: join again."""
        return await self._beat(me.id, me.epoch, ttl_s, known_version)

    async def time_and_view(self) -> tuple[float, RingView]:
        """Return the fleet's time (Redis's clock, Unix s) and the ring, without being in it."""
        beat = await self._beat("", 0, 0, _NONE_KNOWN)
        return beat.time_s, beat.ring or RingView(0, ())

    async def _beat(self, node: NodeId, epoch: int, ttl_s: float, known_version: int) -> Heartbeat:
        held, version, now_ms, found, expired = await self._redis.run_urgent_script(
            "ring_beat", _RING, node, epoch, int(ttl_s * 1000), known_version
        )
        if node and not held:
            raise LeaseLost(f"The lease of node {node[:8]} ran out; another view of the ring is in force.")
        ring = RingView(version, _nodes(found)) if found is not None else None
        return Heartbeat(now_ms / 1000, ring, tuple(lost.decode() for lost in expired))

    async def leave(self, *nodes: NodeInfo) -> None:
        """Have nodes leave at once, so that nobody has to wait for their leases to run out."""
        await self._redis.call_many([script_command("ring_leave", _RING, info.id, info.epoch) for info in nodes])

    async def drain(self, node: NodeInfo) -> None:
        """Have a node leave, and its worker stay out of the ring until it is restored."""
        # Noted first: the worker joins again as soon as it sees that its lease is gone.
        await self._redis.run_script("ring_drain", (keys.RING_DRAINED,), node.name, "1")
        await self.leave(node)

    async def restore(self, name: str) -> bool:
        """Let a worker, by the name of its nodes, join again; False if it is not kept out."""
        return bool(await self._redis.call("ZREM", keys.RING_DRAINED, name))

    async def record_if_drained(self, name: str) -> bool:
        """Return whether an admin keeps a worker of this name out, which is noted as being there."""
        return bool(await self._redis.run_script("ring_drain", (keys.RING_DRAINED,), name, ""))

    async def drained(self) -> list[str]:
        """Return the names of the workers that are kept out, are running and wait to be restored."""
        now_s, _ = await self.time_and_view()
        since_ms = (now_s - _WAITING_SEEN_WITHIN_S) * 1000
        found = await self._redis.call("ZRANGEBYSCORE", keys.RING_DRAINED, since_ms, "+inf")
        return sorted(name.decode() for name in found)

    async def look(self) -> RingView:
        """Return the ring without being in it."""
        return (await self.time_and_view())[1]

    async def nodes(self) -> list[NodeInfo]:
        """Return the living nodes, sorted by id."""
        return list((await self.look()).nodes)


def _nodes(found: Sequence[bytes]) -> tuple[NodeInfo, ...]:
    nodes = []
    for value in found[1::2]:
        epoch, _, info = value.partition(b" ")
        try:
            nodes.append(msgspec.structs.replace(msgspec.json.decode(info, type=NodeInfo), epoch=int(epoch)))
        except (msgspec.MsgspecError, ValueError) as error:
            raise StoreUnavailable(f"The ring holds a node of another version of Coronet: {error}") from error
    return tuple(sorted(nodes, key=lambda info: info.id))


class FailedProcess(msgspec.Struct, frozen=True):
    """A process whose lease ended, at this moment of Redis's clock (Unix s), and that nobody has buried."""

    holder: str
    lease_ended_s: float


class PartitionHeartbeat(msgspec.Struct, frozen=True):
    """What a heartbeat brought: our parts, how many we may have, and the dead, if it is on us to bury them."""

    partitions: frozenset[int]
    max_partitions: int
    failed: tuple[FailedProcess, ...]


class PartitionLeases(RedisRepository):
    """Partitions shared by processes, by name. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def heartbeat(
        self, name: str, holder: str, parts: int, ttl_s: float, back: frozenset[int] = frozenset()
    ) -> PartitionHeartbeat:
        """Say that a process lives, for ``ttl_s``; give parts ``back``; return what it has of all ``parts``."""
        reply = await self._redis.run_urgent_script(
            "spread_beat",
            keys.partition_leases(name),
            holder,
            int(ttl_s * 1000),
            parts,
            " ".join(map(str, sorted(back))),
        )
        mine, most, dead, recoverer = reply
        found = (FailedProcess(dead[i].decode(), float(dead[i + 1]) / 1000) for i in range(0, len(dead), 2))
        return PartitionHeartbeat(frozenset(mine), most, tuple(found) if recoverer.decode() == holder else ())

    async def release_failed(self, name: str, holder: str) -> bool:
        """Free what a dead process held; False if it lives after all."""
        return bool(await self._redis.run_script("spread_leave", keys.partition_leases(name), holder, "dead"))

    async def release(self, name: str, holder: str) -> None:
        """Free what a process held that ends in order."""
        await self._redis.run_script("spread_leave", keys.partition_leases(name), holder)

    async def holders(self, name: str) -> dict[int, str]:
        """Return who holds which part."""
        found = await self._redis.call("HGETALL", keys.partition_leases(name)[1])
        return {int(number): holder.decode() for number, holder in found.items()}


_BELIEVED_S = 60.0


class BotEndpoints(RedisRepository):
    """Addresses of the metrics of all running bots, which are not on the ring."""

    async def announce(self, metrics_url: str) -> None:
        """Tell where a bot's metrics are; to be repeated well within a minute. Raises :class:`StoreUnavailable`."""
        now_s = time.time()
        await self._redis.call_many(
            [
                ("ZADD", keys.BOT_METRICS_URLS, now_s, metrics_url),
                ("ZREMRANGEBYSCORE", keys.BOT_METRICS_URLS, "-inf", now_s - _BELIEVED_S),
            ]
        )

    async def metrics_urls(self) -> list[str]:
        """Return where the metrics of bots are that told so within the last minute."""
        found = await self._redis.call("ZRANGEBYSCORE", keys.BOT_METRICS_URLS, time.time() - _BELIEVED_S, "+inf")
        return [url.decode() for url in found]
