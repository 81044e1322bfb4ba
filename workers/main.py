"""The worker program: wires the parts together, and starts a new life whenever the lease was lost."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

import structlog

from service.clock import SystemClock
from service.errors import LeaseLost, StoreUnavailable
from service.feeds.sandbox import ParserPool
from service.metrics import LOOP_LAG
from service.model import NodeInfo
from service.net.fetch import Fetcher
from service.net.health import serve_health
from service.net.useragent import user_agent
from service.overlay.joining import balanced_id
from service.settings import Settings
from service.shutdown import until_stopped
from service.store import Store, open_store
from workers.answers import Answers
from workers.courtesy import Courtesy
from workers.heap import tend_heap
from workers.lanes import ParserBudgets, lanes_of_polls, lanes_of_probes
from workers.memories import Memories
from workers.node import Node
from workers.peers.door import Door
from workers.peers.main import Peers
from workers.poller import Poller
from workers.polling import Polling
from workers.tasks import Tasks
from workers.websub import Hubs
from workers.witness import Witness, process_of

_RETRY_S = 1.0
_LAG_MEASURED_EVERY_S = 0.1
_SLOW_NICENESS = 10
"""Of the parser children that read what is costly: it gets the processor when nobody else wants it."""

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Be a worker until SIGTERM or SIGINT."""
    tend_heap()
    await until_stopped(work(settings))


async def work(settings: Settings) -> None:
    """Be a worker until cancelled, whatever Redis and publishers do."""
    store = open_store(settings)
    door = Door()
    health = await serve_health(
        settings.metrics_bind, settings.metrics_port, store.ping, door.routes(), settings=settings
    )
    me = NodeInfo("", 0, _name(), 0.0, f"{health.url}/metrics", process_of(os.getpid()))
    fetcher = Fetcher(
        user_agent=user_agent(settings.console_public_url),
        allow_private=settings.allow_private,
        extra_ports=settings.extra_ports,
    )
    tasks, clock = Tasks(), SystemClock()
    try:
        async with (
            Peers(me, settings, store.channels, clock, door) as peers,
            fetcher,
            ParserPool(1) as prompt,
            ParserPool(1, _SLOW_NICENESS) as slow,
            ParserPool(1) as unknown,
            ParserPool(1, _SLOW_NICENESS) as slow_unknown,
        ):
            courtesy = Courtesy(store.hosts, settings)
            budgets = ParserBudgets()
            lanes = lanes_of_polls(prompt, slow, budgets)
            poller = Poller(fetcher, courtesy, lanes, Memories(peers.contents), clock)
            answers = Answers(store, poller, lanes_of_probes(unknown, slow_unknown, budgets))
            tasks.start(_measure_loop_lag())
            hubs = Hubs(store, fetcher, courtesy, clock, settings.console_public_url)
            mates: set[Polling] = set()

            async def live(joined: NodeInfo) -> None:
                node = Node(
                    joined, store, poller, hubs, settings, clock=clock, witness=witness, peers=peers, mates=mates
                )
                await node.live(answers.answer)

            with contextlib.closing(Witness(store, tasks)) as witness:
                async with asyncio.TaskGroup() as nodes:
                    nodes.create_task(store.identity.run())
                    for _ in range(settings.nodes_per_worker):
                        nodes.create_task(_lives(store, live, settings, me))
    finally:
        try:
            await tasks.cancel()
            await health.close()
        finally:
            await store.close()


async def _measure_loop_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_MEASURED_EVERY_S
        await asyncio.sleep(_LAG_MEASURED_EVERY_S)
        LOOP_LAG.observe(max(loop.time() - due_s, 0.0))


async def _lives(
    store: Store, live: Callable[[NodeInfo], Awaitable[None]], settings: Settings, worker: NodeInfo
) -> None:
    said = ""
    while True:
        try:
            if await store.ring.kept_out(worker.name):
                await asyncio.sleep(_RETRY_S)
                continue
            me = await store.ring.join(
                worker.name, worker.metrics_url, settings.lease_ttl_s, balanced_id, worker.process
            )
        except (StoreUnavailable, LeaseLost) as error:
            if str(error) != said:
                said = str(error)
                log.warning("cannot join the ring yet", error=said)
            await asyncio.sleep(_RETRY_S)
            continue
        said = ""
        log.info("joined the ring", node=me.id[:8], epoch=me.epoch)
        try:
            await live(me)
        except LeaseLost as error:
            log.warning("lost the lease; joining again", node=me.id[:8], error=str(error))
        finally:
            with contextlib.suppress(StoreUnavailable):
                await store.ring.leave(me)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
