"""Bounded room for polls, pushes and probes: whoever is slow waits for others who are slow, and nobody else does (I7).

There is a prompt and a slow lane, each with slots and a parser child of its own. Within a lane, slots are shared out by
site (registrable domain) and by address network, so that neither many hosts of one domain nor many domains at one
provider fill it. A channel goes on in the slow lane if its last poll took long, to be fetched or to be parsed, or while
its site or its network has used up the parser time that it may take here. Its documents are read by the slow lane's
child only if they are costly: when the machine itself is slow, all fetches are, and one child of low priority could not
read for all. What proves to be costly in the prompt child is read again by the slow one. Private publishers (loopback)
are the operator's own: they have slots by host and port, and neither network nor budget.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from math import inf
from typing import NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from service.errors import LimitReached, ParseKilled
from service.feeds.sandbox.parser_pool import PARSE_TIMEOUT_S, ParserPool
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult
from service.feeds.urls import host_of
from service.model import Channel
from service.observability.metrics import FAST_PARSER_TIMEOUTS
from workers.polling.politeness import charged_site
from workers.polling.poll_state import PollState, Publisher

PROMPT_FETCH_S = 2.0
"""What takes longer to be fetched is slow."""
PROMPT_CPU_S = 0.3
"""What takes more processor time to be parsed is slow; typical feeds take a fiftieth of that."""

_ROOM_WITHIN_S = 5.0
_BUCKETS_KEPT = 10_000
_HANDED_OVER_S = 1.0
"""What is charged for a document that was handed over: its time, and that of the child that follows the killed one."""
_LARGE_BYTES = 512 * 1024
"""Documents of that size are read by the slow parser at once: they would hardly be prompt."""


def publisher_of(channel: Channel, address_group: str) -> Publisher:
    """Return a channel's publisher; ``address_group`` is what ``Courtesy.answered`` said of its last answer."""
    site = charged_site(channel)
    return Publisher(site or urlsplit(channel.url).netloc, address_group, bool(site))


def publisher_of_watch(watch: PollState) -> Publisher:
    """Return the same of a channel that is polled, without making it anew for each poll."""
    known = watch.publisher
    if known is None or known.network != watch.address_group:
        known = watch.publisher = publisher_of(watch.channel, watch.address_group)
    return known


class Allowance(NamedTuple):
    """Parser time that one site or network may take of one worker: so much at once, and on average."""

    at_once_s: float
    per_minute_s: float


SITE_ALLOWANCE = Allowance(1.0, 1.0)
NETWORK_ALLOWANCE = Allowance(3.0, 3.0)


class _Bucket(msgspec.Struct):
    """Parser time that was taken and has not leaked away by ``at_s``."""

    taken_s: float = 0.0
    at_s: float = 0.0


class ParserTimeBudgets:
    """Parser time by site and by network, as leaky buckets, in the memory of this worker.

    Whoever has used up theirs is served by the slow lane until enough has leaked away. A bucket holds twice its
    allowance at most, so that this takes minutes at the longest.
    """

    def __init__(self) -> None:
        self._buckets = LRUCache[tuple[str, str], _Bucket](_BUCKETS_KEPT)

    def charge(self, publisher: Publisher, cpu_s: float) -> None:
        """Charge a publisher's site and network."""
        now_s = time.monotonic()
        for key, allowance in _accounts(publisher):
            taken_s = self._taken_s(key, allowance, now_s) + cpu_s
            self._buckets[key] = _Bucket(min(taken_s, 2 * allowance.at_once_s), now_s)

    def is_spent(self, publisher: Publisher) -> bool:
        """Whether a publisher's site or network has used up its allowance."""
        now_s = time.monotonic()
        return any(
            self._taken_s(key, allowance, now_s) >= allowance.at_once_s for key, allowance in _accounts(publisher)
        )

    def _taken_s(self, key: tuple[str, str], allowance: Allowance, now_s: float) -> float:
        bucket = self._buckets.get(key, _Bucket())
        return max(bucket.taken_s - (now_s - bucket.at_s) * allowance.per_minute_s / 60, 0.0)


def _accounts(publisher: Publisher) -> list[tuple[tuple[str, str], Allowance]]:
    if not publisher.is_public:
        return []
    accounts = [(("site", publisher.site), SITE_ALLOWANCE)]
    if publisher.network:
        accounts.append((("network", publisher.network), NETWORK_ALLOWANCE))
    return accounts


class LaneLimits(NamedTuple):
    """How many slots there are, for one site, for one network, and for all whose network is not known yet."""

    slots: int
    per_site: int
    per_network: int
    unknown: int


class _Semaphores(WeakValueDictionary[str, asyncio.Semaphore]):
    """One semaphore for each name that is in use."""

    def __init__(self, each: int) -> None:
        super().__init__()
        self._each = each

    def of(self, name: str) -> asyncio.Semaphore:
        return self.setdefault(name, asyncio.Semaphore(self._each))


class ConcurrencyLane:
    """Slots, and one parser child. ``slots`` is entered for a poll under way, ``reading`` for the child."""

    def __init__(
        self,
        shares: LaneLimits,
        parser: ParserPool,
        budgets: ParserTimeBudgets,
        *,
        reads_per_network: int,
        cpu_s: float,
    ) -> None:
        self.slots = asyncio.Semaphore(shares.slots)
        self.reading = asyncio.Semaphore(1)
        self._parser = parser
        self._budgets = budgets
        self._cpu_s = cpu_s
        self._sites = _Semaphores(shares.per_site)
        self._networks = _Semaphores(shares.per_network)
        self._unknown = asyncio.Semaphore(shares.unknown)
        self._readers = _Semaphores(reads_per_network)

    def site(self, publisher: Publisher) -> asyncio.Semaphore:
        """Return what is entered first, by those that have to do with a site."""
        return self._sites.of(publisher.site)

    @contextlib.asynccontextmanager
    async def slot(self, publisher: Publisher) -> AsyncIterator[None]:
        """Hold a slot, and one of those that the publisher's network has."""
        async with self._network(publisher) or contextlib.nullcontext(), self.slots:
            yield

    def is_full(self, publisher: Publisher) -> bool:
        """Whether one has to wait for a slot."""
        network = self._network(publisher)
        return self.slots.locked() or (network is not None and network.locked())

    def _network(self, publisher: Publisher) -> asyncio.Semaphore | None:
        if not publisher.is_public:
            return None
        return self._networks.of(publisher.network) if publisher.network else self._unknown

    @contextlib.asynccontextmanager
    async def parser(self, publisher: Publisher) -> AsyncIterator[None]:
        """Hold the parser child; no network has more than its share of those who wait for it."""
        name = publisher.network or publisher.site
        async with self._readers.of(name), self.reading:
            yield

    async def detect_changes(
        self, job: DetectChanges, watch: PollState, patience_s: float = PARSE_TIMEOUT_S
    ) -> DetectionResult:
        """Read a document with the child, which is held, and charge its publisher; note whether it was slow.

        Raises as :meth:`ParserPool.detect_changes`.
        """
        before_s, least_s = self._parser.cpu_s, 0.0
        try:
            return await self._parser.detect_changes(msgspec.structs.replace(job, cpu_s=self._cpu_s), patience_s)
        except ParseKilled:
            least_s = _HANDED_OVER_S
            raise
        finally:
            took_s = self._parser.cpu_s - before_s
            self._budgets.charge(publisher_of_watch(watch), max(took_s, least_s))
            watch.costly = max(took_s, least_s) >= PROMPT_CPU_S


class ConcurrencyLanes:
    """The prompt and the slow lane of polls and pushes, or of probes."""

    def __init__(self, prompt: ConcurrencyLane, slow: ConcurrencyLane, budgets: ParserTimeBudgets) -> None:
        self._prompt = prompt
        self._slow = slow
        self._budgets = budgets

    def for_poll(self, watch: PollState) -> ConcurrencyLane:
        """Return the lane that a channel is to be polled in now."""
        return self._slow if watch.slow else self.for_document(watch, 0)

    def for_document(self, watch: PollState, size_bytes: int) -> ConcurrencyLane:
        """Return the lane whose child is to read a document of a channel."""
        is_costly = watch.costly or size_bytes > _LARGE_BYTES or self._budgets.is_spent(publisher_of_watch(watch))
        return self._slow if is_costly else self._prompt

    async def detect_changes(
        self, job: DetectChanges, watch: PollState, patience_s: float = PARSE_TIMEOUT_S
    ) -> DetectionResult:
        """Read documents of a poll; what is costly for the prompt child is read by the slow one.

        Raises as :meth:`ParserPool.detect_changes`.
        """
        publisher = publisher_of_watch(watch)
        size_bytes = sum(len(document.body) for document in job.documents)
        if self.for_document(watch, size_bytes) is self._prompt:
            async with self._prompt.parser(publisher):
                # While it waited, others of its publisher may have used up what there was.
                if not self._budgets.is_spent(publisher):
                    with contextlib.suppress(ParseKilled):
                        return await self._prompt.detect_changes(job, watch, patience_s)
                    FAST_PARSER_TIMEOUTS.inc()
        async with self._slow.parser(publisher):
            return await self._slow.detect_changes(job, watch, patience_s)

    @contextlib.asynccontextmanager
    async def room(self, channel: Channel, address_group: str) -> AsyncIterator[None]:
        """Hold a slot for all that is asked of a channel's publisher on behalf of a person who waits.

        Raises :class:`LimitReached` if there is none soon.
        """
        publisher = publisher_of(channel, address_group)
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_ROOM_WITHIN_S):
                    if publisher.is_public:
                        await held.enter_async_context(self._prompt.site(publisher))
                    await held.enter_async_context(self._prompt.slot(publisher))
            except TimeoutError:
                host = host_of(channel.url)
                raise LimitReached(f"{host} was not asked: too much is looked at just now. Try again.") from None
            yield


def create_poll_lanes(prompt: ParserPool, slow: ParserPool, budgets: ParserTimeBudgets) -> ConcurrencyLanes:
    """Return the lanes of polls and pushes."""
    # Of one site, together the four connections that a fetcher has per host.
    return ConcurrencyLanes(
        ConcurrencyLane(LaneLimits(64, 3, 8, 32), prompt, budgets, reads_per_network=8, cpu_s=PROMPT_CPU_S),
        ConcurrencyLane(LaneLimits(16, 1, 4, 8), slow, budgets, reads_per_network=1, cpu_s=inf),
        budgets,
    )


def create_probe_lanes(prompt: ParserPool, slow: ParserPool, budgets: ParserTimeBudgets) -> ConcurrencyLanes:
    """Return the lanes of what people bring; each has its room in the prompt lane from the beginning to the end."""
    shares = LaneLimits(24, 2, 6, 12)
    return ConcurrencyLanes(
        ConcurrencyLane(shares, prompt, budgets, reads_per_network=6, cpu_s=PROMPT_CPU_S),
        ConcurrencyLane(shares, slow, budgets, reads_per_network=1, cpu_s=inf),
        budgets,
    )
