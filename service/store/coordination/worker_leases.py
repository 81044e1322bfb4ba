"""The ring: the workers that currently belong to the fleet. Each has a lease, timed by Redis's clock."""

from collections.abc import Callable, Sequence

import msgspec

from service.errors import LeaseLost, StoreUnavailable
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from service.store.client import keys
from service.store.client.redis_client import RedisClient, RedisRepository, script_command

_RING = (keys.RING_NODES, keys.RING_LEASES, keys.RING_CHANGES)
_JOIN_TRIES = 100
_WAITING_SEEN_WITHIN_S = 30.0
_DRAINED_KEPT_MS = 86_400_000
"""How long a drained worker stays drained (kept out of the ring) while it is not running (ms)."""


class _NodeRecord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The description of a worker in the ring, which is stored as JSON.

    :class:`NodeInfo` has two more fields, id and epoch, which are stored next to the JSON.
    """

    name: str
    joined_s: float
    metrics_url: str = ""
    process: str = ""


_records = msgspec.json.Decoder(_NodeRecord)


class Heartbeat(msgspec.Struct, frozen=True):
    """The reply to a worker that has renewed its lease.

    - ``time_s``: the time of Redis's clock (Unix s), which all workers use.
    - ``ring``: the workers in the ring; None if the worker already has the present version of the ring.
    - ``expired``: nodes whose leases have ended, except those that an earlier call has reported.
    """

    time_s: float
    ring: RingView | None
    expired: tuple[NodeId, ...]


class Ring(RedisRepository):
    """Reads and changes the ring, that is, the workers that currently belong to the fleet.

    All callers in this process share a cached copy of the ring. Later reads therefore request only the nodes that have
    joined or left since the copy was updated.
    """

    # Redis returns the whole ring if its log of changes does not reach back that far.

    def __init__(self, redis: RedisClient) -> None:
        super().__init__(redis)
        self._view = RingView(0, ())

    async def join(
        self,
        name: str,
        metrics_url: str,
        ttl_s: float,
        choose: Callable[[Sequence[NodeId]], NodeId],
        process: str = "",
    ) -> NodeInfo:
        """Join the ring of workers with a lease of ``ttl_s`` seconds; return the new node.

        - ``name``: the worker's name.
        - ``metrics_url``: URL of the worker's metrics.
        - ``choose``: function that is called with the ids of the present nodes and returns an id for the new node. If
          another node joins or leaves in the meantime, the function is called again.
        - ``process``: unique name of this run of the worker's process; "" if unknown.

        Raises :class:`LeaseLost` if other nodes joined or left during every attempt, and :class:`StoreUnavailable` if
        Redis is unavailable.
        """
        for _ in range(_JOIN_TRIES):
            time_s, seen = await self.time_and_view()
            node = choose(seen.ids)
            value = msgspec.json.encode(_NodeRecord(name, time_s, metrics_url, process))
            epoch = await self._redis.run_script("ring_join", _RING, seen.version, node, value, int(ttl_s * 1000))
            if epoch:
                return NodeInfo(node, epoch, name, time_s, metrics_url, process)
        raise LeaseLost("Could not join the ring: others joined or left at every try. Start this worker again.")

    async def heartbeat(self, me: NodeInfo, ttl_s: float, known_version: int) -> Heartbeat:
        """Renew the lease of the worker ``me`` for ``ttl_s`` seconds.

        ``known_version`` is the version of the ring that the caller already has. Raises :class:`LeaseLost` if the lease
        has expired; the worker then has to join the ring again.
        """
        held, time_s, expired = await self._beat(me.id, me.epoch, ttl_s)
        if not held:
            raise LeaseLost(f"The lease of node {me.id[:8]} ran out; another view of the ring is in force.")
        return Heartbeat(time_s, self._view if self._view.version != known_version else None, expired)

    async def time_and_view(self) -> tuple[float, RingView]:
        """Return the time of Redis's clock (Unix s), which all workers use, and the present ring.

        The caller need not be a worker in the ring.
        """
        _, time_s, _ = await self._beat("", 0, 0)
        return time_s, self._view

    async def _beat(self, node: NodeId, epoch: int, ttl_s: float) -> tuple[bool, float, tuple[NodeId, ...]]:
        """Renew a worker's lease, and update the cached copy of the ring.

        Return (is valid, time, expired):

        - whether the lease was still valid and was renewed
        - the time of Redis's clock (Unix s)
        - nodes whose leases have ended, except those that an earlier call has reported
        """
        base = self._view
        held, version, now_ms, whole, found, expired = await self._redis.run_urgent_script(
            "ring_heartbeat", _RING, node, epoch, int(ttl_s * 1000), base.version
        )
        if version > self._view.version:  # otherwise a later reply was processed first
            self._view = (RingView(0, ()) if whole else base).with_changes(version, *_changes(found))
        return held == 1, now_ms / 1000, tuple(lost.decode() for lost in expired)

    async def leave(self, *nodes: NodeInfo) -> None:
        """Remove nodes from the ring immediately, so that other nodes need not wait until the leases expire."""
        await self._redis.call_many([script_command("ring_leave", _RING, info.id, info.epoch) for info in nodes])

    async def drain(self, node: NodeInfo) -> None:
        """Drain a worker: remove ``node`` from the ring, and keep the worker out until :meth:`restore` is called."""
        # First, because the worker joins again as soon as it notices that its lease is lost.
        await self._redis.call("ZADD", keys.RING_DRAINED, await self._redis.time_s() * 1000, node.name)
        await self.leave(node)

    async def restore(self, name: str) -> bool:
        """Allow the drained worker called ``name`` to join the ring again; return False if it is not drained."""
        return bool(await self._redis.call("ZREM", keys.RING_DRAINED, name))

    async def record_if_drained(self, name: str) -> bool:
        """Return whether the worker called ``name`` is drained (kept out of the ring).

        If it is drained, the call also records that the worker is still running.
        """
        now_ms = await self._redis.time_s() * 1000
        *_, reported_ms = await self._redis.call_many(
            [
                ("ZREMRANGEBYSCORE", keys.RING_DRAINED, "-inf", now_ms - _DRAINED_KEPT_MS),
                ("ZADD", keys.RING_DRAINED, "XX", now_ms, name),
                ("ZSCORE", keys.RING_DRAINED, name),
            ]
        )
        return reported_ms is not None

    async def drained(self) -> list[str]:
        """Return the sorted names of all drained workers (kept out of the ring) that are still running."""
        now_s, _ = await self.time_and_view()
        since_ms = (now_s - _WAITING_SEEN_WITHIN_S) * 1000
        found = await self._redis.call("ZRANGEBYSCORE", keys.RING_DRAINED, since_ms, "+inf")
        return sorted(name.decode() for name in found)

    async def view(self) -> RingView:
        """Return the present ring. The caller need not be a worker in the ring."""
        return (await self.time_and_view())[1]

    async def nodes(self) -> list[NodeInfo]:
        """Return all nodes in the ring, sorted by id."""
        return list((await self.view()).nodes)


def _changes(found: Sequence[bytes | None]) -> tuple[list[NodeInfo], list[NodeId]]:
    """Return (joined, left): the nodes that have joined the ring, and the ids of the nodes that have left it.

    ``found`` is part of the reply of the script ``ring_heartbeat``: alternating node ids and descriptions. The
    description of a node that has left is None. Raises :class:`StoreUnavailable` if a description cannot be decoded.
    """
    present, left = list[NodeInfo](), list[NodeId]()
    for node, value in zip(found[::2], found[1::2], strict=True):
        node_id = (node or b"").decode()
        if value is None:
            left.append(node_id)
            continue
        epoch, _, text = value.partition(b" ")
        try:
            record = _records.decode(text)
            info = NodeInfo(node_id, int(epoch), record.name, record.joined_s, record.metrics_url, record.process)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StoreUnavailable(f"The ring holds a node of another version of Coronet: {error}") from error
        present.append(info)
    return present, left
