"""The worker program: wires the parts together, and starts a new life whenever the lease was lost."""

import asyncio
import contextlib
import os
import socket

import structlog

from service.clock import SystemClock
from service.console.health import serve_health
from service.errors import LeaseLost, StoreUnavailable
from service.feeds.sandbox import ParserPool
from service.net.fetch import Fetcher
from service.net.useragent import user_agent
from service.overlay.joining import balanced_id
from service.settings import Settings
from service.shutdown import until_stopped
from service.store import Store, open_store
from workers.answers import Answers
from workers.courtesy import Courtesy
from workers.lanes import Lanes
from workers.node import Node
from workers.poller import Poller

_RETRY_S = 1.0

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Be a worker until SIGTERM or SIGINT."""
    await until_stopped(work(settings))


async def work(settings: Settings) -> None:
    """Be a worker until cancelled, whatever Redis and publishers do."""
    store = open_store(settings)
    health = await serve_health(settings.metrics_bind, settings.metrics_port, store.ping)
    fetcher = Fetcher(
        user_agent=user_agent(settings.console_public_url),
        allow_private=settings.allow_private,
        extra_ports=settings.extra_ports,
    )
    try:
        async with fetcher, ParserPool(1) as prompt, ParserPool(1) as slow, ParserPool(1) as unknown:
            clock = SystemClock()
            courtesy = Courtesy(
                store.hosts,
                requests_per_s=settings.host_requests_per_s,
                polls_per_hour=settings.max_polls_per_hour,
            )
            poller = Poller(fetcher, courtesy, Lanes(prompt, slow), unknown, clock)
            await _lives(store, poller, settings, f"{health.url}/metrics")
    finally:
        await health.close()
        await store.close()


async def _lives(store: Store, poller: Poller, settings: Settings, metrics_url: str) -> None:
    answers = Answers(store, poller)
    while True:
        try:
            me = await store.ring.join(_name(), metrics_url, settings.lease_ttl_s, balanced_id)
        except (StoreUnavailable, LeaseLost) as error:
            log.warning("cannot join the ring yet", error=str(error))
            await asyncio.sleep(_RETRY_S)
            continue
        log.info("joined the ring", node=me.id[:8], epoch=me.epoch)
        try:
            await Node(me, store, poller, settings, SystemClock()).live(answers.answer)
        except LeaseLost as error:
            log.warning("lost the lease; joining again", node=me.id[:8], error=str(error))
        finally:
            with contextlib.suppress(StoreUnavailable):
                await store.ring.leave(me)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
