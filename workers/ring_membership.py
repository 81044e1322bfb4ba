"""Membership of nodes in the ring: joining, renewing the lease, and rejoining after the lease is lost.

A node is a member as long as it renews its lease, an entry in the store that expires. If a worker hangs or is cut off
from the store until its nodes' leases expire, other nodes take over the channels. The worker's nodes then rejoin under
new ids.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from service.clock import FleetClock
from service.errors import LeaseLost, StoreIdentityMismatch, StoreUnavailable
from service.model import NodeInfo
from service.observability.metrics import LEASES_LOST
from service.overlay.ring import RingView, balanced_id
from service.store import Store

_RETRY_S = 1.0

log = structlog.get_logger(__name__)


class RingMembership:
    """Keeps one node of a worker in the ring, the list of live nodes.

    If the node loses its lease, it rejoins under a new id.
    """

    def __init__(self, worker: NodeInfo, store: Store, ttl_s: float) -> None:
        """Create the membership of a node in the process ``worker``; its leases are valid for ``ttl_s`` seconds."""
        self._worker = worker
        self._store = store
        self._ttl_s = ttl_s

    async def run(self, on_member: Callable[[NodeInfo], Awaitable[None]], on_ready: Callable[[], None]) -> None:
        """Keep the node in the ring until cancelled.

        While an admin has drained the worker (taken it out of the ring), the node does not join.

        - ``on_member`` runs the node under the id and address in its argument. It raises :class:`LeaseLost` if the
          lease is lost; the node then rejoins the ring under a new id.
        - ``on_ready`` is called when the node has joined or is drained.
        """
        store, worker = self._store, self._worker
        last_error = ""
        while True:
            try:
                if await store.ring.record_if_drained(worker.name):
                    on_ready()
                    await asyncio.sleep(_RETRY_S)
                    continue
                info = await store.ring.join(worker.name, worker.metrics_url, self._ttl_s, balanced_id, worker.process)
            except (StoreUnavailable, LeaseLost) as error:
                if str(error) != last_error:
                    last_error = str(error)
                    log.warning("ring join failed, will retry", error=last_error)
                await asyncio.sleep(_RETRY_S)
                continue
            last_error = ""
            on_ready()
            log.info("ring joined", node=info.id[:8], epoch=info.epoch)
            try:
                await on_member(info)
            except LeaseLost as error:
                LEASES_LOST.labels("worker").inc()
                log.warning("ring lease lost, will join again", node=info.id[:8], error=str(error))
            finally:
                with contextlib.suppress(StoreUnavailable):
                    await store.ring.leave(info)


async def renew_lease(
    store: Store, clock: FleetClock, node: NodeInfo, ttl_s: float, ring_version: int
) -> RingView | None:
    """Renew the lease of ``node`` for ``ttl_s`` seconds, and set ``clock`` to the time that all nodes share.

    ``ring_version`` is the version of the ring that the node knows. Return the ring if the store has a newer version,
    otherwise None. Raises

    - :class:`LeaseLost` if the lease has expired, or if the store no longer holds the same data as before,
    - :class:`StoreUnavailable` if Redis is unavailable.
    """
    # Inboxes of nodes whose leases have expired are deleted.
    sent_s = clock.monotonic_s()
    try:
        heartbeat = await store.ring.heartbeat(node, ttl_s, ring_version)
        await store.node_inboxes.delete(heartbeat.expired)
    except StoreIdentityMismatch as error:
        # The node's state belongs to other data than the store has now.
        raise LeaseLost(str(error)) from error
    at_s = (sent_s + clock.monotonic_s()) / 2
    clock.set_wall(heartbeat.time_s, at_s)
    return heartbeat.ring
