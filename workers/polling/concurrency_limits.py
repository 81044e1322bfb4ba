"""Concurrency limits for requests to publishers, so that a slow publisher delays only other slow ones (guarantee I7).

The limits apply to polls, to documents that WebSub hubs push, and to requests for new URLs. There is a fast and a slow
*lane*. Each lane has its own slots and its own parser process. In each lane, the slots of a site (registrable domain)
and of a network are limited, so that no domain or provider occupies all slots.

- A channel (a feed or page) is polled in the slow lane if fetching or parsing was slow at its last poll, or while its
  site or network has used up its parser time.
- A document is parsed in the slow lane only if parsing it is likely to be costly.
- A document that proves costly in the fast lane is parsed again in the slow lane.
- Private publishers (loopback) belong to the operator. Their slots are limited only by host and port, and their parser
  time is not limited.
"""

# A slow fetch is no reason to parse in the slow lane: on a slow machine all fetches are slow, and one parser process of
# low priority could not parse all documents.

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from math import inf
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from service.errors import LimitReached, ParseKilled
from service.feeds.canonical_urls import host_of
from service.feeds.sandbox.parser_client import PARSE_TIMEOUT_S, ParserClient
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult
from service.observability.metrics import FAST_PARSER_TIMEOUTS
from workers.polling.politeness import charged_site
from workers.polling.poll_state import PollState

FAST_FETCH_S = 2.0
"""Maximum duration of a fast fetch in seconds; a longer fetch counts as slow."""
FAST_CPU_S = 0.1
"""Maximum processor time of fast parsing in seconds; longer parsing counts as slow. Other documents wait meanwhile.
Typical feeds take less than a tenth of this time."""

_SLOT_TIMEOUT_S = 5.0
_MAX_BUCKETS = 10_000
_MIN_CHARGE_AFTER_KILL_S = 1.0
"""Minimum parser time, in seconds, that is charged for a document if a parser process was killed because of it. A site
can therefore cause only one such death per minute in the fast lane."""
_LARGE_BYTES = 512 * 1024
"""Size in bytes above which a document is parsed in the slow lane at once, because the fast lane's parser would hardly
finish such a document."""


class Publisher(NamedTuple):
    """The publisher of a document: its site, and the network of the address that serves it ("" if not known yet)."""

    site: str
    network: str
    is_public: bool


def publisher_of(state: PollState) -> Publisher:
    """Return the publisher of the channel in ``state``.

    The publisher's network is the network that responded to the last poll.
    """
    site = charged_site(state.channel)
    return Publisher(site or urlsplit(state.channel.url).netloc, state.address_group, bool(site))


class Allowance(NamedTuple):
    """The parser time that one site or network may use on one worker, in seconds of processor time.

    ``burst_s`` is the maximum that may be used at once, and ``per_minute_s`` the maximum per minute on average.
    """

    burst_s: float
    per_minute_s: float


SITE_ALLOWANCE = Allowance(1.0, 1.0)
NETWORK_ALLOWANCE = Allowance(3.0, 3.0)


class ParserTimeBudgets:
    """The parser time that each site and network has used on this worker.

    When a site or network has used up its allowance, its documents are parsed in the slow lane, which has a separate
    parser for costly documents. The allowance recovers within a minute after the last document.
    """

    # The times are leaky buckets in memory. The allowance is used up while the level is at least ``burst_s``. The level
    # is never more than 2 · ``burst_s``.

    def __init__(self) -> None:
        self._buckets = LRUCache[tuple[str, str], tuple[float, float]](_MAX_BUCKETS)
        """Maps (kind, site or network) to a leaky bucket: its level in seconds, and when it was set (monotonic)."""

    def charge(self, publisher: Publisher, cpu_s: float) -> None:
        """Charge ``cpu_s`` seconds of parser time to the budgets of a publisher's site and network."""
        for key, allowance in _allowances(publisher):
            used_s = min(self._used_s(key, allowance) + cpu_s, 2 * allowance.burst_s)
            self._buckets[key] = used_s, time.monotonic()

    def is_exhausted(self, publisher: Publisher) -> bool:
        """Return whether a publisher's site or network has used up its allowance of parser time."""
        return any(self._used_s(key, allowance) >= allowance.burst_s for key, allowance in _allowances(publisher))

    def _used_s(self, key: tuple[str, str], allowance: Allowance) -> float:
        used_s, at_s = self._buckets.get(key, (0.0, 0.0))
        return max(used_s - (time.monotonic() - at_s) * allowance.per_minute_s / 60, 0.0)


def _allowances(publisher: Publisher) -> list[tuple[tuple[str, str], Allowance]]:
    if not publisher.is_public:
        return []
    allowances = [(("site", publisher.site), SITE_ALLOWANCE)]
    if publisher.network:
        allowances.append((("network", publisher.network), NETWORK_ALLOWANCE))
    return allowances


class LaneLimits(NamedTuple):
    """The limits of one lane. A lane is a set of slots for polls; there is a fast lane and a slow one.

    - ``slots``: how many slots there are in total.
    - ``per_site``, ``per_network``: how many slots one site or one network may use.
    - ``unknown_network``: how many slots may be used in total for publishers whose network is not known yet.
    - ``readers_per_network``: how many polls of one network may use the lane's parser process or wait for it.
    - ``cpu_s``: the processor time in seconds that one parser job may take; infinity means that only the parser's own
      limit applies.
    """

    slots: int
    per_site: int
    per_network: int
    unknown_network: int
    readers_per_network: int
    cpu_s: float


# The slots of one site in both lanes are together the four connections that a fetcher has per host.
POLL_LIMITS: Final = (
    LaneLimits(slots=64, per_site=3, per_network=8, unknown_network=32, readers_per_network=8, cpu_s=FAST_CPU_S),
    LaneLimits(slots=16, per_site=1, per_network=4, unknown_network=8, readers_per_network=1, cpu_s=inf),
)
"""The limits of the fast and the slow lane for polls and pushed documents."""
PROBE_LIMITS: Final = (
    LaneLimits(slots=24, per_site=2, per_network=6, unknown_network=12, readers_per_network=6, cpu_s=FAST_CPU_S),
    LaneLimits(slots=24, per_site=2, per_network=6, unknown_network=12, readers_per_network=1, cpu_s=inf),
)
"""The limits of the fast and the slow lane for probes (requests to URLs that are not polled yet). Each probe holds a
slot of the fast lane from beginning to end."""


class _Semaphores(WeakValueDictionary[str, asyncio.Semaphore]):
    """Semaphores by name, each shared by up to ``size`` holders; a semaphore exists only while it is in use."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def named(self, name: str) -> asyncio.Semaphore:
        return self.setdefault(name, asyncio.Semaphore(self._size))


class ConcurrencyLane:
    """One of two separate lanes for polls, a fast and a slow one. A lane has a number of slots, and one parser process.

    A poll holds the semaphore ``slots`` and, while its documents are parsed, the semaphore ``reading``, which
    represents the parser process.
    """

    def __init__(self, limits: LaneLimits, parser: ParserClient, budgets: ParserTimeBudgets) -> None:
        """Create a lane that parses documents with ``parser``, and charges the time to publishers' ``budgets``."""
        self.slots = asyncio.Semaphore(limits.slots)
        self.reading = asyncio.Semaphore(1)
        self._parser = parser
        self._budgets = budgets
        self._cpu_s = limits.cpu_s
        self._sites = _Semaphores(limits.per_site)
        self._networks = _Semaphores(limits.per_network)
        self._unknown_network = asyncio.Semaphore(limits.unknown_network)
        self._readers = _Semaphores(limits.readers_per_network)

    def site(self, publisher: Publisher) -> asyncio.Semaphore:
        """Return the semaphore of a publisher's site. Callers must acquire it before they acquire a slot."""
        return self._sites.named(publisher.site)

    @contextlib.asynccontextmanager
    async def slot(self, publisher: Publisher) -> AsyncIterator[bool]:
        """Hold a slot of the lane inside this context.

        The slot also counts towards the limit of the publisher's network. Yields whether the caller had to wait.
        """
        network = self._network(publisher)
        has_waited = self.slots.locked() or (network is not None and network.locked())
        async with network or contextlib.nullcontext(), self.slots:
            yield has_waited

    def _network(self, publisher: Publisher) -> asyncio.Semaphore | None:
        if not publisher.is_public:
            return None
        return self._networks.named(publisher.network) if publisher.network else self._unknown_network

    @contextlib.asynccontextmanager
    async def parser(self, publisher: Publisher) -> AsyncIterator[None]:
        """Hold the lane's parser process inside this context.

        For each network, the number of callers that hold the process or wait for it is limited. If the publisher's
        network is not known, its site is limited instead.
        """
        name = publisher.network or publisher.site
        async with self._readers.named(name), self.reading:
            yield

    async def detect_changes(
        self, job: DetectChanges, state: PollState, timeout_s: float = PARSE_TIMEOUT_S
    ) -> DetectionResult:
        """Run ``job`` in the parser process, which the caller holds; charge the time to the publisher's budget.

        Sets ``state.costly`` to True if the job took at least ``FAST_CPU_S`` of processor time, otherwise to False.
        Raises the errors of :meth:`ParserClient.detect_changes`.
        """
        before_s, least_s = self._parser.cpu_s, 0.0
        try:
            return await self._parser.detect_changes(msgspec.structs.replace(job, cpu_s=self._cpu_s), timeout_s)
        except ParseKilled:
            least_s = _MIN_CHARGE_AFTER_KILL_S
            raise
        finally:
            used_s = max(self._parser.cpu_s - before_s, least_s)
            self._budgets.charge(publisher_of(state), used_s)
            state.costly = used_s >= FAST_CPU_S


class ConcurrencyLanes:
    """The fast and the slow lane, and the choice between them for each poll and document.

    Each lane has its own slots and its own parser.
    """

    def __init__(
        self, limits: tuple[LaneLimits, LaneLimits], fast: ParserClient, slow: ParserClient, budgets: ParserTimeBudgets
    ) -> None:
        """Create the two lanes.

        ``limits`` are the limits of the fast and the slow lane, in this order. ``fast`` and ``slow`` are the lanes'
        parsers.
        """
        self._fast = ConcurrencyLane(limits[0], fast, budgets)
        self._slow = ConcurrencyLane(limits[1], slow, budgets)
        self._budgets = budgets

    def choose_for_poll(self, state: PollState) -> ConcurrencyLane:
        """Return the lane, fast or slow, in which to poll a channel now.

        The slow lane is chosen if the last fetch was slow, the last parse was costly, or the publisher's parser time is
        used up.
        """
        return self._slow if state.slow else self.choose_for_document(state, 0)

    def choose_for_document(self, state: PollState, size_bytes: int) -> ConcurrencyLane:
        """Return the lane, fast or slow, in which to parse a channel's documents.

        ``size_bytes`` is the total size of the documents. The slow lane is chosen if the last parse was costly, the
        documents are large, or the publisher's parser time is used up.
        """
        is_costly = state.costly or size_bytes > _LARGE_BYTES or self._budgets.is_exhausted(publisher_of(state))
        return self._slow if is_costly else self._fast

    async def detect_changes(
        self, job: DetectChanges, state: PollState, timeout_s: float = PARSE_TIMEOUT_S
    ) -> DetectionResult:
        """Run ``job`` in the parser of the fast lane, or of the slow lane if the job is likely to be costly.

        A job that proves costly in the fast lane is repeated in the slow lane. Raises the errors of
        :meth:`ParserClient.detect_changes`.
        """
        publisher = publisher_of(state)
        size_bytes = sum(len(document.body) for document in job.documents)
        if self.choose_for_document(state, size_bytes) is self._fast:
            async with self._fast.parser(publisher):
                # While this job waited, others may have used up the publisher's budget.
                if not self._budgets.is_exhausted(publisher):
                    with contextlib.suppress(ParseKilled):
                        return await self._fast.detect_changes(job, state, timeout_s)
                    FAST_PARSER_TIMEOUTS.inc()
        async with self._slow.parser(publisher):
            return await self._slow.detect_changes(job, state, timeout_s)

    @contextlib.asynccontextmanager
    async def hold_slot(self, state: PollState) -> AsyncIterator[None]:
        """Hold a slot of the fast lane inside this context, for requests to the publisher of a channel.

        Raises :class:`LimitReached` if no slot is free within 5 s.
        """
        publisher = publisher_of(state)
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_SLOT_TIMEOUT_S):
                    if publisher.is_public:
                        await held.enter_async_context(self._fast.site(publisher))
                    await held.enter_async_context(self._fast.slot(publisher))
            except TimeoutError:
                host = host_of(state.channel.url)
                raise LimitReached(
                    f"Too many URLs are being checked, so {host} was not contacted. Try again."
                ) from None
            yield
