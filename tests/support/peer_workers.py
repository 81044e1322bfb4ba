"""Workers in the test's process that exchange content over real sockets, with a ring that the test defines."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from io import BytesIO

import aiohttp
from aiohttp import web
from prometheus_client import REGISTRY
from pydantic import SecretStr

from service.asyncio_tasks import cancel_and_wait
from service.clock import SystemClock
from service.location.content_cache import Content, Digest, digest_of, pack_entries
from service.model import Channel, Entry, NodeId, NodeInfo
from service.net.health_endpoints import serve_health
from service.net.http_server import HttpServer
from service.net.peer_client import Peer, peer_of
from service.net.peer_request_signatures import SIGNATURE_HEADER
from service.overlay.ring import RingView
from service.settings import Settings
from service.store import Store
from service.tick_timer import create_tick_timer
from tests.support.channels import make_channel
from tests.support.waiting import until_so
from workers.peers.baseline_lookup import LocatedContent
from workers.peers.peer_endpoint import PeerEndpoint

SECRET = "the fleet's"
SETTINGS = Settings(cluster_secret=SecretStr(SECRET), maintenance_interval_s=0.5, near_rtt_s=1e-9)
"""Settings with which all workers are far from each other, so that they exchange filters."""
NEAR = SETTINGS.model_copy(update={"near_rtt_s": 10.0})
"""Settings with which all workers are near each other."""


class Worker:
    """One worker's content exchange; the node id determines the channels that it owns."""

    def __init__(self, store: Store, settings: Settings, node: NodeId, health: HttpServer) -> None:
        self.info = NodeInfo(node, 1, node[:4], 0.0, f"{health.url}/metrics")
        me = peer_of(self.info)
        assert me is not None
        self.me: Peer = me
        self.timer = create_tick_timer(settings)
        self.peers = PeerEndpoint(settings, store, SystemClock(), self.timer, me)

    @property
    def neighbours(self) -> set[NodeId]:
        return {node for node, link in self.peers._overlay._node.links.items() if link.is_open}

    def has(self, channel: Channel, content: Content) -> Digest:
        """Put content into the cache; return its digest."""
        digest = digest_of(content)
        self.peers.contents.put(channel.id, digest, content)
        return digest

    async def locate(self, channel: Channel, digest: Digest) -> LocatedContent:
        return await self.peers.contents.locate(channel.id, channel.version, digest)


@contextlib.asynccontextmanager
async def worker(store: Store, node: NodeId, settings: Settings = SETTINGS) -> AsyncIterator[Worker]:
    """Run a worker whose ring has no other workers."""

    async def ready() -> None:
        return

    async def handle(request: web.Request) -> web.Response:
        return await made.peers.on_request(request)

    async with serve_health("127.0.0.1", 0, ready, [web.post("/peers/{worker}/{verb}", handle)]) as health:
        made = Worker(store, settings, node, health)
        ticking = asyncio.create_task(made.timer.run())
        try:
            async with made.peers.running():
                yield made
        finally:
            await cancel_and_wait(ticking)


@contextlib.asynccontextmanager
async def fleet(store: Store, size: int, settings: Settings = SETTINGS) -> AsyncIterator[list[Worker]]:
    """Run ``size`` workers with evenly spaced ids, which form one ring."""
    async with contextlib.AsyncExitStack() as stack:
        ids = [f"{number * 16 // size:x}" + "0" * 39 for number in range(size)]
        made = [await stack.enter_async_context(worker(store, node, settings)) for node in ids]
        introduce(made)
        yield made


def introduce(workers: Sequence[Worker], version: int = 1) -> RingView:
    """Update the ring of all workers to these workers; return its view."""
    ring = RingView(version, tuple(sorted((each.info for each in workers), key=lambda info: info.id)))
    for each in workers:
        each.peers.on_ring_changed(ring)
    return ring


def some_content(title: str) -> Content:
    return Content(f"what is remembered of {title}".encode() * 20, pack_entries((Entry(title, title),)))


async def owned_by(store: Store, owner: Worker, ring: RingView) -> Channel:
    """Create a channel that this worker owns."""
    number = 0
    while True:
        channel = await make_channel(store, f"https://{number}.example/feed")
        if ring.owner(channel.id) == owner.info.id:
            return channel
        number += 1


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def refused(reason: str) -> float:
    return counted("coronet_peer_refusals_total", reason=reason)


async def linked(workers: list[Worker]) -> None:
    """Wait until all workers are neighbours of each other."""
    await until_so(
        lambda: all(len(each.neighbours) == len(workers) - 1 for each in workers), "all are neighbours of all"
    )


async def known(asker: Worker, document: bytes) -> None:
    """Wait until the attenuated filters of ``asker`` contain a document."""
    overlay = asker.peers._overlay
    await until_so(lambda: overlay.first_hop(document.hex()), "the filters know it")


async def posted(to: Worker, verb: str, body: bytes, seal: str, *, worker_id: str = "") -> int:
    url = f"{to.me.url}/peers/{worker_id or to.me.id}/{verb}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=BytesIO(body), headers={SIGNATURE_HEADER: seal}) as answer,
    ):
        return answer.status
