"""Runner of stored OPML imports: adds the queued feeds, many at once, but at the pace of their publishers.

Bots run the imports of their users, and consoles those of admins. A feed whose publisher may not be asked now, or that
no worker could look at, is tried again later, while other feeds are added.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from service.asyncio_tasks import run_until_one_ends
from service.errors import (
    CoronetError,
    LimitReached,
    NotAFeed,
    OperationalError,
    RequestsPaused,
    StoreUnavailable,
)
from service.feeds.canonical_urls import host_of, is_loopback
from service.feeds.opml_import import ImportOutcome, QueuedFeed
from service.feeds.opml_writer import OpmlSubscription
from service.model import ChannelId
from service.net.sites_and_networks import site_of
from service.store import Store
from service.store.subscriptions.opml_imports import ImportJobs

PARALLEL_FEEDS: Final = 10
"""Maximum number of feeds that one process adds in parallel. A bot and a console together stay below the number of a
worker's slots for new URLs, so that people who subscribe to a new URL meanwhile find a free slot."""
_FEEDS_PER_STEP: Final = 500
_MAX_ATTEMPTS: Final = 300
_RETRY_DELAY_S: Final = 10.0
_PAUSED_DELAY_S: Final = 60.0

AddFeed = Callable[[OpmlSubscription], Awaitable[bool]]
"""Adds a feed; returns whether it is new. Raises :class:`RetryLater` to be called again, or a CoronetError if the feed
cannot be added."""


class RetryLater(Exception):
    """Raised if a feed cannot be looked at now, because of ``error``. It is tried again after ``delay_s`` seconds.

    The attempt counts as ``attempts`` attempts. After ``_MAX_ATTEMPTS`` of them, the feed fails with ``error``.
    """

    def __init__(self, error: CoronetError, attempts: int, delay_s: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts
        self.delay_s = delay_s


class ImportRunner:
    """Runs the imports of one process, which together add up to ``PARALLEL_FEEDS`` feeds at once."""

    def __init__(self, store: Store, jobs: ImportJobs) -> None:
        """Create a runner of the imports in ``jobs``."""
        self._store = store
        self._jobs = jobs
        self._slots = asyncio.Semaphore(PARALLEL_FEEDS)

    async def run(self, owner: str, add: AddFeed) -> None:
        """Call ``add`` for each queued feed of an import, and record the outcome, until no feed is queued.

        Raises :class:`StoreUnavailable`; the next call continues the import.
        """
        while feeds := await self._jobs.pending(owner):
            await _Batch(self._jobs, owner, feeds, add, self._slots).run()

    async def find_or_create_channel(self, feed: OpmlSubscription) -> ChannelId:
        """Have a worker find the channel for a feed, and create it if it does not exist; return its id.

        Raises :class:`RetryLater` if the feed cannot be looked at now, and another CoronetError if it cannot be used.
        """
        try:
            probed = await self._store.worker_requests.probe(feed.url, as_page=feed.page)
        except StoreUnavailable:
            raise
        except RequestsPaused as error:
            raise RetryLater(error, 30, _PAUSED_DELAY_S) from error
        except LimitReached as error:  # other requests to the site came first
            raise RetryLater(error, 1, _RETRY_DELAY_S) from error
        except OperationalError as error:
            # Without a worker, an import waits; but a feed with which no worker can finish must not delay it forever.
            attempts = 30 if await self._store.ring.nodes() else 0
            raise RetryLater(error, attempts, _RETRY_DELAY_S) from error
        if probed.channel is None:
            raise NotAFeed("There is a page that names no feed, or several.")
        return probed.channel.id


class _Batch:
    """The feeds that were queued in an import at one time.

    Each site has one *turn*, so that one feed of the site is added at a time; loopback hosts have many turns. A turn
    waits in a queue until a task takes it.
    """

    def __init__(
        self, jobs: ImportJobs, owner: str, feeds: Mapping[bytes, QueuedFeed], add: AddFeed, slots: asyncio.Semaphore
    ) -> None:
        self._jobs = jobs
        self._owner = owner
        self._add = add
        self._slots = slots
        self._left = len(feeds)
        self._attempts = Counter[bytes]()
        self._waiting: dict[str, deque[tuple[bytes, QueuedFeed]]] = {}
        self._turns = asyncio.Queue[str]()
        self._ended = asyncio.Event()
        self._feeds = feeds

    async def run(self) -> None:
        """Add the feeds, until the outcome of each is recorded or the queue in the store has been changed otherwise."""
        for count, (packed, feed) in enumerate(self._feeds.items()):
            if count % _FEEDS_PER_STEP == 0:
                await asyncio.sleep(0)  # thousands of sites take a noticeable time
            self._waiting.setdefault(site_of(host_of(feed.url)), deque()).append((packed, feed))
        for site in self._waiting:
            for _ in range(PARALLEL_FEEDS if is_loopback(site) else 1):
                self._turns.put_nowait(site)
        await run_until_one_ends(self._ended.wait(), *(self._work() for _ in range(PARALLEL_FEEDS)))

    async def _work(self) -> None:
        while True:
            site = await self._turns.get()
            async with self._slots:
                if self._waiting[site]:
                    await self._add_next(site)

    async def _add_next(self, site: str) -> None:
        """Add the next feed of a site, which has a turn; then, perhaps after a delay, give the site its next turn."""
        packed, feed = self._waiting[site].popleft()
        outcome: ImportOutcome
        try:
            outcome = await self._add(feed)
        except RetryLater as later:
            self._attempts[packed] += later.attempts
            if self._attempts[packed] < _MAX_ATTEMPTS:
                asyncio.get_running_loop().call_later(later.delay_s, self._put_back, site, packed, feed)
                if not await self._jobs.has_pending(self._owner):  # the import was stopped
                    self._ended.set()
                return
            outcome = later.error
        except StoreUnavailable:
            raise
        except CoronetError as error:
            outcome = error
        self._left -= 1
        if not await self._jobs.record(self._owner, packed, outcome) or not self._left:
            self._ended.set()
        self._turns.put_nowait(site)

    def _put_back(self, site: str, packed: bytes, feed: QueuedFeed) -> None:
        self._waiting[site].append((packed, feed))
        self._turns.put_nowait(site)
