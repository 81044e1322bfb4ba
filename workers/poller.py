"""One poll: politely fetch, parse in a killable child, and decide what is new.

Corona §3.3: a node that finds a change makes a delta against the version it knows and offers it
to the channel's owner. A poll that fails changes nothing.
"""

import asyncio
import ipaddress
from urllib.parse import urlsplit

from service.clock import Clock
from service.errors import BadStatus, CoronetError, NotAFeed, Unreachable
from service.feeds.sandbox import ParserPool
from service.feeds.wire import Reading
from service.metrics import DETECTION, POLLS
from service.model import Delta, NodeId, PollResult
from service.net.fetch import Fetched, Fetcher
from service.store.hosts import Hosts
from workers.watch import Found, Watch, compare

_WAIT_FOR_BUDGET_S = 20.0
_NEWEST_DELAY_S = 86_400.0


class Poller:
    """Polls publishers for one node, within each host's budget over the whole fleet."""

    def __init__(
        self, fetcher: Fetcher, parsers: ParserPool, hosts: Hosts, requests_per_s: float, clock: Clock
    ) -> None:
        self._fetcher = fetcher
        self._parsers = parsers
        self._hosts = hosts
        self._requests_per_s = requests_per_s
        self._clock = clock

    async def poll(self, watch: Watch, node: NodeId) -> tuple[PollResult, Found | None]:
        """Poll once; ``watch`` is updated in place unless something was found.

        The result tells how it ended, errors of publishers included. Raises only our own errors.
        """
        started_s = self._clock.monotonic_s()
        status, size_bytes, found, detail = 0, 0, None, ""
        try:
            fetched = await self.fetch(watch)
            status, size_bytes = fetched.status, len(fetched.body or b"")
            found = await self._compare(watch, fetched)
            outcome = "new" if found else "unchanged"
        except CoronetError as error:
            outcome, detail = error.code, str(error)
            if isinstance(error, BadStatus):
                status = error.status
                watch.not_before_s = self._clock.wall_s() + (error.retry_after_s or 0.0)
        POLLS.labels(outcome).inc()
        took_s = self._clock.monotonic_s() - started_s
        result = PollResult(node, self._clock.wall_s(), outcome, status, detail, took_s, size_bytes)
        return result, found

    async def fetch(self, watch: Watch) -> Fetched:
        """Fetch when the host's budget allows. Raises a publisher's error, or :class:`Unreachable` when it does not."""
        url = watch.channel.url
        host = urlsplit(url).hostname or ""
        if not (watch.channel.private or _is_loopback(host)):
            await self._within_budget(host)
        return await self._fetcher.fetch(url, watch.validators, watch.subscribers)

    async def read(self, fetched: Fetched) -> Reading:
        """Parse a body that was fetched, in a child."""
        return await self._parsers.read(fetched.body or b"", url=fetched.url, headers=fetched.headers)

    async def _within_budget(self, host: str) -> None:
        waited_s = 0.0
        while (wait_s := await self._hosts.take(host, self._requests_per_s)) > 0:
            waited_s += wait_s
            if waited_s > _WAIT_FOR_BUDGET_S:
                raise Unreachable(f"{host} was not asked: the fleet's budget for this host is used up for now.")
            await asyncio.sleep(wait_s)

    async def _compare(self, watch: Watch, fetched: Fetched) -> Found | None:
        feed = None
        if fetched.body is not None:
            feed = (await self.read(fetched)).feed
            if feed is None:
                raise NotAFeed(f"{watch.channel.url} answers with a page that is not a feed (any more).")
        found = compare(watch, fetched, feed, self._clock.wall_s())
        if found is not None:
            _measure(found.candidate.delta)
        return found


def _is_loopback(host: str) -> bool:
    """Say whether a URL's host means this machine: there the guard decides, not politeness."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _measure(delta: Delta) -> None:
    for change in delta.changes:
        published_s = change.entry.published
        # What is dated in the future or long ago says nothing about how fast we are.
        if published_s is not None and 0 <= delta.detected_s - published_s <= _NEWEST_DELAY_S:
            DETECTION.observe(delta.detected_s - published_s)
