"""How much the fleet polls, from the counters that every worker serves.

:class:`PollRate` is arithmetic on samples; :func:`watch_poll_rate` asks the workers.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import NodeId, NodeInfo
from service.store import Store

SAMPLE_EVERY_S: Final = 5.0
WINDOW_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 2.0

Counters = Mapping[str, float]
"""Polls by outcome since a node started."""

log = structlog.get_logger(__name__)


class PollRate:
    """Polls per minute by outcome, over the last ``WINDOW_S`` at most."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[NodeId, Counters]]] = deque()

    def add(self, at_s: float, counters: Mapping[NodeId, Counters]) -> None:
        """Take in what the nodes' counters said at a (monotonic) moment."""
        self._samples.append((at_s, counters))
        while self._samples[0][0] < at_s - WINDOW_S:
            self._samples.popleft()

    def per_minute(self) -> dict[str, float]:
        """Return polls per minute by outcome; empty until there are two samples.

        A node that joined in between, or was not heard once, counts from when it was first heard.
        """
        if not self._samples or self._samples[-1][0] == self._samples[0][0]:
            return {}
        span_s = self._samples[-1][0] - self._samples[0][0]
        earliest: dict[NodeId, Counters] = {}
        for _, counters in reversed(self._samples):
            earliest.update(counters)
        rates: dict[str, float] = {}
        for node, latest in self._samples[-1][1].items():
            for outcome, total in latest.items():
                polls = max(0.0, total - earliest[node].get(outcome, 0.0))
                rates[outcome] = rates.get(outcome, 0.0) + polls * 60 / span_s
        return rates


def polls_by_outcome(text: str) -> Counters:
    """Return ``coronet_polls_total`` by outcome from a metrics page. Raises ``ValueError`` if it is none."""
    return {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "coronet_polls_total"
    }


async def watch_poll_rate(rate: PollRate, store: Store, clock: Clock) -> None:
    """Sample every worker's counters every ``SAMPLE_EVERY_S``, for ever."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            try:
                nodes = [node for node in await store.ring.view() if node.metrics_url]
            except StoreUnavailable:
                nodes = []
            answers = await asyncio.gather(*(_counters(session, node) for node in nodes))
            rate.add(clock.monotonic_s(), {n.id: a for n, a in zip(nodes, answers, strict=True) if a is not None})
            await asyncio.sleep(SAMPLE_EVERY_S)


async def _counters(session: aiohttp.ClientSession, node: NodeInfo) -> Counters | None:
    try:
        async with session.get(node.metrics_url) as answer:
            return polls_by_outcome(await answer.text())
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        log.info("a worker's metrics cannot be read", node=node.name, url=node.metrics_url, error=str(error))
        return None
