"""The worker program: creates the parts of a worker, and joins the ring again whenever its node has lost its lease."""

import asyncio
import contextlib
import ctypes
import gc
import os
import secrets
import socket

import structlog

from service.clock import FleetClock
from service.errors import LeaseLost, StoreUnavailable
from service.feeds.sandbox.parser_pool import ParserPool
from service.model import NodeInfo
from service.net.fetcher import Fetcher, user_agent
from service.net.health_endpoints import serve_health
from service.observability.metrics import LOOP_LAG
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.shutdown import run_until_stopped
from service.store import open_store
from workers.node import Node, WorkerContext
from workers.peers.content_cache import BaselineCache
from workers.peers.exchange import PeerExchange
from workers.polling.concurrency_limits import ParserTimeBudgets, create_poll_lanes, create_probe_lanes
from workers.polling.politeness import Politeness
from workers.polling.poller import Poller
from workers.polling.websub import HubSubscriber
from workers.request_handlers import WorkerRequestHandlers
from workers.tasks import BackgroundTasks

_RETRY_S = 1.0
_LOOP_LAG_INTERVAL_S = 1.0
_SLOW_NICENESS = 10
"""Of the parser processes for costly documents: they use processor time that no other process needs."""

_GC_THRESHOLDS = 20_000, 20, 20
_MMAP_THRESHOLD_BYTES = 64 * 1024
_M_MMAP_THRESHOLD = -3

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Run a worker with these settings until the process receives SIGTERM or SIGINT."""
    configure_memory()
    await run_until_stopped(run_worker(settings))


async def run_worker(settings: Settings) -> None:
    """Run a worker until cancelled, even while Redis or publishers are unavailable."""
    store = open_store(settings)
    clock = FleetClock()
    peers = PeerExchange(settings, store, clock)
    health = await serve_health(
        settings.metrics_bind, settings.metrics_port, store.ping, peers.routes(), settings=settings
    )
    worker = NodeInfo("", 0, _worker_name(), 0.0, f"{health.url}/metrics", secrets.token_hex(8))
    fetcher = Fetcher(
        user_agent=user_agent(settings.console_public_url),
        allow_private=settings.allow_private,
        extra_ports=settings.extra_ports,
    )
    tasks = BackgroundTasks()
    peers.configure(worker)
    try:
        async with (
            peers,
            fetcher,
            ParserPool(1) as poll_parser,
            ParserPool(1, _SLOW_NICENESS) as slow_poll_parser,
            ParserPool(1) as probe_parser,
            ParserPool(1, _SLOW_NICENESS) as slow_probe_parser,
        ):
            politeness = Politeness(store.request_budgets, settings)
            budgets = ParserTimeBudgets()
            poll_lanes = create_poll_lanes(poll_parser, slow_poll_parser, budgets)
            probe_lanes = create_probe_lanes(probe_parser, slow_probe_parser, budgets)
            poller = Poller(fetcher, politeness, poll_lanes, BaselineCache(peers.contents), clock)
            handlers = WorkerRequestHandlers(store, poller, probe_lanes)
            tasks.start(_measure_loop_lag())
            hubs = HubSubscriber(store, fetcher, politeness, clock, settings.console_public_url)
            context = WorkerContext(store, settings, clock, poller, hubs, peers)
            async with asyncio.TaskGroup() as nodes:
                nodes.create_task(store.identity.run())
                for _ in range(settings.nodes_per_worker):
                    nodes.create_task(_run_node(worker, context, handlers))
    finally:
        try:
            await tasks.cancel()
            await health.close()
        finally:
            await store.close()


def configure_memory() -> None:
    """Configure garbage collection and the allocator of this process for tens of thousands of channels.

    Garbage collection traverses the channels' state, which has no reference cycles. At the default threshold of 700 new
    objects, that takes a quarter of a busy worker's time. The allocator's threshold for separate mappings is fixed,
    because glibc raises it whenever a large block is freed; later blocks then come from the heap and leave holes in it.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


async def _measure_loop_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LOOP_LAG_INTERVAL_S
        await asyncio.sleep(_LOOP_LAG_INTERVAL_S)
        LOOP_LAG.observe(max(loop.time() - due_s, 0.0))


async def _run_node(worker: NodeInfo, context: WorkerContext, handlers: WorkerRequestHandlers) -> None:
    """Run a node of this worker until cancelled.

    Whenever the node has lost its lease, it joins the ring again under a new id.
    """
    store, ttl_s = context.store, context.settings.lease_ttl_s
    last_error = ""
    while True:
        try:
            if await store.ring.record_if_drained(worker.name):
                await asyncio.sleep(_RETRY_S)
                continue
            info = await store.ring.join(worker.name, worker.metrics_url, ttl_s, balanced_id, worker.process)
        except (StoreUnavailable, LeaseLost) as error:
            if str(error) != last_error:
                last_error = str(error)
                log.warning("ring join failed, will retry", error=last_error)
            await asyncio.sleep(_RETRY_S)
            continue
        last_error = ""
        log.info("ring joined", node=info.id[:8], epoch=info.epoch)
        try:
            await Node(info, context, handlers.handle).run()
        except LeaseLost as error:
            log.warning("ring lease lost, will join again", node=info.id[:8], error=str(error))
        finally:
            with contextlib.suppress(StoreUnavailable):
                await store.ring.leave(info)


def _worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
