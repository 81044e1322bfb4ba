"""Membership in the ring: a node that loses its lease joins again under a new id."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from service.clock import FleetClock
from service.errors import LeaseLost, StoreIdentityMismatch, StoreUnavailable
from service.model import NodeInfo
from service.store import Store
from workers.ring_membership import RingMembership, renew_lease

WORKER = NodeInfo("", 0, "host:1", 0.0, "http://127.0.0.1:1", "process")


class Ring:
    """A ring in memory, in which each join creates a new node."""

    def __init__(self, *, heartbeat_error: Exception | None = None) -> None:
        self.joined: list[NodeInfo] = []
        self.left: list[NodeInfo] = []
        self.heartbeat_error = heartbeat_error

    async def record_if_drained(self, _name: str) -> bool:
        return False

    async def join(self, name: str, url: str, *_: object) -> NodeInfo:
        self.joined.append(NodeInfo(f"{len(self.joined):040}", 1, name, 0.0, url))
        return self.joined[-1]

    async def leave(self, node: NodeInfo) -> None:
        self.left.append(node)

    async def heartbeat(self, *_: object) -> object:
        if self.heartbeat_error is not None:
            raise self.heartbeat_error
        return SimpleNamespace(expired=(), time_s=5_000.0, ring=None)


class Inboxes:
    async def delete(self, _nodes: object) -> None:
        return


def store_with(ring: Ring) -> Store:
    return cast("Store", SimpleNamespace(ring=ring, node_inboxes=Inboxes()))


async def test_a_node_joins_again_under_a_new_id_after_it_has_lost_its_lease() -> None:
    ring, runs, ready = Ring(), list[NodeInfo](), list[bool]()

    async def run(node: NodeInfo) -> None:
        runs.append(node)
        if len(runs) < 3:
            raise LeaseLost("frozen for too long")
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await RingMembership(WORKER, store_with(ring), 10.0).run(run, lambda: ready.append(True))
    assert runs == ring.joined == ring.left
    assert len({node.id for node in runs}) == len(ready) == 3


async def test_the_renewal_of_a_lease_sets_the_clock() -> None:
    clock = FleetClock()
    assert await renew_lease(store_with(Ring()), clock, WORKER, 10.0, 1) is None
    assert clock.wall_s() == pytest.approx(5_000.0, abs=5.0)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (LeaseLost("expired"), LeaseLost),
        (StoreIdentityMismatch("other data"), LeaseLost),
        (StoreUnavailable("down"), StoreUnavailable),
    ],
)
async def test_a_store_identity_mismatch_counts_as_a_lost_lease(error: Exception, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        await renew_lease(store_with(Ring(heartbeat_error=error)), FleetClock(), WORKER, 10.0, 1)
