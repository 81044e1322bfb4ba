"""The worker program: wires the parts together, and starts a new life whenever the lease was lost."""

import asyncio
import contextlib
import ctypes
import gc
import os
import socket
import uuid

import structlog

from service.clock import SystemClock
from service.errors import LeaseLost, StoreUnavailable
from service.feeds.sandbox.parser_pool import ParserPool
from service.model import NodeInfo
from service.net.fetcher import Fetcher, user_agent
from service.net.health import serve_health
from service.observability.metrics import LOOP_LAG
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.shutdown import run_until_stopped
from service.store import open_store
from workers.node import Node, WorkerContext
from workers.peers.content_cache import BaselineCache
from workers.peers.exchange import ContentExchange
from workers.polling.concurrency_limits import ParserTimeBudgets, create_poll_lanes, create_probe_lanes
from workers.polling.politeness import Politeness
from workers.polling.poller import Poller
from workers.polling.websub import HubSubscriber
from workers.request_handlers import WorkerRequestHandlers
from workers.tasks import BackgroundTasks

_RETRY_S = 1.0
_LAG_MEASURED_EVERY_S = 0.1
_SLOW_NICENESS = 10
"""Of the parser children that read what is costly: it gets the processor when nobody else wants it."""

_COLLECTED_AFTER = 20_000, 20, 20
_ALONE_FROM_BYTES = 64 * 1024
_M_MMAP_THRESHOLD = -3

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Be a worker until SIGTERM or SIGINT."""
    configure_memory()
    await run_until_stopped(run_worker(settings))


async def run_worker(settings: Settings) -> None:
    """Be a worker until cancelled, whatever Redis and publishers do."""
    store = open_store(settings)
    clock = SystemClock()
    peers = ContentExchange(settings, store.channels, clock)
    health = await serve_health(
        settings.metrics_bind, settings.metrics_port, store.ping, peers.routes(), settings=settings
    )
    me = NodeInfo("", 0, _name(), 0.0, f"{health.url}/metrics", uuid.uuid4().hex)
    fetcher = Fetcher(
        user_agent=user_agent(settings.console_public_url),
        allow_private=settings.allow_private,
        extra_ports=settings.extra_ports,
    )
    tasks = BackgroundTasks()
    peers.begin(me)
    try:
        async with (
            peers,
            fetcher,
            ParserPool(1) as prompt,
            ParserPool(1, _SLOW_NICENESS) as slow,
            ParserPool(1) as unknown,
            ParserPool(1, _SLOW_NICENESS) as slow_unknown,
        ):
            politeness = Politeness(store.request_budgets, settings)
            budgets = ParserTimeBudgets()
            lanes = create_poll_lanes(prompt, slow, budgets)
            poller = Poller(fetcher, politeness, lanes, BaselineCache(peers.contents), clock)
            answers = WorkerRequestHandlers(store, poller, create_probe_lanes(unknown, slow_unknown, budgets))
            tasks.start(_measure_loop_lag())
            hubs = HubSubscriber(store, fetcher, politeness, clock, settings.console_public_url)
            parts = WorkerContext(store, settings, clock, poller, hubs, peers)
            async with asyncio.TaskGroup() as nodes:
                nodes.create_task(store.identity.run())
                for _ in range(settings.nodes_per_worker):
                    nodes.create_task(_lives(me, parts, answers))
    finally:
        try:
            await tasks.cancel()
            await health.close()
        finally:
            await store.close()


def configure_memory() -> None:
    """Settle how this process collects garbage, and what it gives back to the system.

    Garbage collection walks over what tens of thousands of channels need, in which there are no cycles: every 700 new
    objects, as is usual, it takes a quarter of a busy worker's time. And once glibc has seen a large block freed, it
    takes the next from the heap, where what is gone leaves holes: with a fixed limit it does not.
    """
    gc.set_threshold(*_COLLECTED_AFTER)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _ALONE_FROM_BYTES)


async def _measure_loop_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_MEASURED_EVERY_S
        await asyncio.sleep(_LAG_MEASURED_EVERY_S)
        LOOP_LAG.observe(max(loop.time() - due_s, 0.0))


async def _lives(worker: NodeInfo, parts: WorkerContext, answers: WorkerRequestHandlers) -> None:
    """Be one node of this worker for ever: a new life begins whenever the lease was lost."""
    store, ttl_s = parts.store, parts.settings.lease_ttl_s
    said = ""
    while True:
        try:
            if await store.ring.record_if_drained(worker.name):
                await asyncio.sleep(_RETRY_S)
                continue
            me = await store.ring.join(worker.name, worker.metrics_url, ttl_s, balanced_id, worker.process)
        except (StoreUnavailable, LeaseLost) as error:
            if str(error) != said:
                said = str(error)
                log.warning("cannot join the ring yet", error=said)
            await asyncio.sleep(_RETRY_S)
            continue
        said = ""
        log.info("joined the ring", node=me.id[:8], epoch=me.epoch)
        try:
            await Node(me, parts, answers.answer).live()
        except LeaseLost as error:
            log.warning("lost the lease; joining again", node=me.id[:8], error=str(error))
        finally:
            with contextlib.suppress(StoreUnavailable):
                await store.ring.leave(me)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
