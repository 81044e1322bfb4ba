"""One poll: politely fetch, parse in a killable child, and decide what is new.

Corona §3.3: a node that finds a change makes a delta against the version it knows and offers it
to the channel's owner. A poll that fails changes nothing.
"""

import contextlib
from collections.abc import Iterator

from service.clock import Clock
from service.errors import BadStatus, LimitReached, NotAFeed, ParseKilled, PublisherError, UserError
from service.feeds.sandbox import ParserPool
from service.feeds.wire import Reading
from service.metrics import DETECTION, POLLS
from service.model import Delta, NodeId, PollResult
from service.net.fetch import Fetched, Fetcher
from workers.courtesy import Courtesy
from workers.lanes import SLOW_S, Lane, Lanes
from workers.watch import Found, Watch, compare

_NEWEST_DELAY_S = 86_400.0


class Poller:
    """Polls publishers for one node, as often as the fleet's courtesy allows.

    Channels that are not known yet have a parser of their own, so that people wait for nobody's polls.
    """

    def __init__(
        self, fetcher: Fetcher, courtesy: Courtesy, lanes: Lanes, parser_of_the_unknown: ParserPool, clock: Clock
    ) -> None:
        self._fetcher = fetcher
        self._courtesy = courtesy
        self._lanes = lanes
        self._parser_of_the_unknown = parser_of_the_unknown
        self._clock = clock

    async def poll(self, watch: Watch, node: NodeId) -> tuple[PollResult, Found | None]:
        """Poll once; ``watch`` is updated in place unless something was found.

        The result tells how it ended, errors of publishers included. Raises :class:`LimitReached` when the
        publisher may not be asked now, and our own errors.
        """
        started_s = self._clock.monotonic_s()
        status, size_bytes, found, detail = 0, 0, None, ""
        lane = self._lanes.of(slow=watch.slow)
        try:
            async with lane.host(watch.channel.url):
                await self._courtesy.may_ask(watch.channel)
                async with lane.slots:
                    started_s, watch.slow = self._clock.monotonic_s(), False
                    with self._timed(watch):
                        fetched = await self._fetch(watch)
                    status, size_bytes = fetched.status, len(fetched.body or b"")
                    found = await self._compare(watch, fetched, lane)
            outcome = "new" if found else "unchanged"
        except LimitReached:
            raise
        except (PublisherError, UserError) as error:
            outcome, detail = error.code, str(error)
            if isinstance(error, BadStatus):
                status = error.status
        POLLS.labels(outcome).inc()
        took_s = self._clock.monotonic_s() - started_s
        result = PollResult(node, self._clock.wall_s(), outcome, status, detail, took_s, size_bytes)
        return result, found

    async def fetch_unknown(self, watch: Watch) -> Fetched:
        """Fetch what nobody polls. Raises a publisher's error, or :class:`LimitReached`."""
        await self._courtesy.may_ask(watch.channel)
        return await self._fetch(watch)

    async def read_unknown(self, fetched: Fetched) -> Reading:
        """Parse what nobody polls, in a child."""
        return await _read(self._parser_of_the_unknown, fetched)

    async def _fetch(self, watch: Watch) -> Fetched:
        try:
            return await self._fetcher.fetch(
                watch.channel.url, watch.validators, watch.subscribers, self._courtesy.may_follow
            )
        except BadStatus as error:
            if error.retry_after_s:
                await self._courtesy.leave_alone(watch.channel, error.retry_after_s)
            raise

    async def _compare(self, watch: Watch, fetched: Fetched, lane: Lane) -> Found | None:
        feed = None
        if fetched.body is not None:
            feed = (await self._reading(watch, fetched, lane)).feed
            if feed is None:
                raise NotAFeed(f"{watch.channel.url} answers with a page that is not a feed (any more).")
        found = compare(watch, fetched, feed, self._clock.wall_s())
        if found is not None:
            _measure(found.candidate.delta)
        return found

    async def _reading(self, watch: Watch, fetched: Fetched, lane: Lane) -> Reading:
        if fetched.validators.body_sha256 == watch.deadly_sha256:
            raise ParseKilled("The document is still the one that used up a parser's time or memory.")
        async with lane.reading:
            try:
                with self._timed(watch):
                    return await _read(lane.parser, fetched)
            except ParseKilled:
                watch.deadly_sha256 = fetched.validators.body_sha256
                raise

    @contextlib.contextmanager
    def _timed(self, watch: Watch) -> Iterator[None]:
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            if self._clock.monotonic_s() - started_s > SLOW_S:
                watch.slow = True


async def _read(parser: ParserPool, fetched: Fetched) -> Reading:
    return await parser.read(fetched.body or b"", url=fetched.url, headers=fetched.headers)


def _measure(delta: Delta) -> None:
    for change in delta.changes:
        published_s = change.entry.published
        # What is dated in the future or long ago says nothing about how fast we are.
        if published_s is not None and 0 <= delta.detected_s - published_s <= _NEWEST_DELAY_S:
            DETECTION.observe(delta.detected_s - published_s)
