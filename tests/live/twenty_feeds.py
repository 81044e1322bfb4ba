"""A publisher with 20 feeds that counts requests, and its publications in five minutes.

Feed 18 gives all entries the same guid; feed 17 dates them half an hour back; the others are normal.
"""

import contextlib
import email.utils
import hashlib
import random
import time
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from service.embedded.sample_publisher import PublishedEntry
from tests.support.delivery_audit import tagged

FEEDS = 20
OLD_ENTRIES = 5
LATE, SAME_GUID = 17, 18
OF_EACH_ODD_KIND = 20
HALF_AN_HOUR_S = 1800.0
_LISTED = 30


def plan(seconds: int, seed: int) -> list[int]:
    """Return the feed that gets an entry at each second, the odd feeds 20 times each."""
    chance = random.Random(seed)  # noqa: S311 - it only mixes feeds
    plain = [feed for feed in range(FEEDS) if feed not in (LATE, SAME_GUID)]
    odd = [LATE, SAME_GUID] * min(OF_EACH_ODD_KIND, seconds // 4)
    feeds = odd + [chance.choice(plain) for _ in range(seconds - len(odd))]
    chance.shuffle(feeds)
    return feeds


class TwentyFeeds:
    """The publisher: RSS with validators, newest first. ``requests`` are the times (Unix s) at which it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[float] = []
        self.published: list[PublishedEntry] = []
        self._items: list[list[tuple[str, str, str, float]]] = [[] for _ in range(FEEDS)]
        for feed in range(FEEDS):
            for number in range(OLD_ENTRIES):
                self._add(feed, f"Old {feed}.{number}", time.time() - 86_400.0 * (OLD_ENTRIES - number))

    def url(self, feed: int) -> str:
        """Return a feed's URL."""
        return f"http://127.0.0.1:{self.port}/feeds/{feed}.xml"

    def publish(self, feed: int) -> None:
        """Add one entry, tagged for the ledger."""
        number = sum(entry.feed == feed for entry in self.published) + 1
        now_s = time.time()
        title = tagged(feed, number)
        self._add(feed, title, now_s - (HALF_AN_HOUR_S if feed == LATE else 0.0))
        self.published.append(PublishedEntry(feed, f"{feed}-{number}", self.url(feed), title, now_s))

    def _add(self, feed: int, title: str, dated_s: float) -> None:
        name = hashlib.sha256(title.encode()).hexdigest()[:12]
        guid = "the-same" if feed == SAME_GUID else name
        self._items[feed].append((guid, title, f"http://127.0.0.1:{self.port}/{feed}/{name}", dated_s))

    def _document(self, feed: int) -> str:
        items = "".join(
            f'<item><guid isPermaLink="false">{guid}</guid><title>{title}</title><link>{link}</link>'
            f"<pubDate>{email.utils.formatdate(dated_s)}</pubDate></item>"
            for guid, title, link, dated_s in reversed(self._items[feed][-_LISTED:])
        )
        return f'<?xml version="1.0"?><rss version="2.0"><channel><title>Feed {feed}</title>{items}</channel></rss>'

    async def answer(self, request: web.Request) -> web.Response:
        """Serve a feed, conditionally."""
        self.requests.append(time.time())
        body = self._document(int(request.match_info["feed"]))
        etag = hashlib.sha256(body.encode()).hexdigest()[:16]
        if any(known.value == etag for known in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'"{etag}"'})
        return web.Response(text=body, content_type="application/rss+xml", headers={"ETag": f'"{etag}"'})


@contextlib.asynccontextmanager
async def twenty_feeds() -> AsyncIterator[TwentyFeeds]:
    """Serve them on a free port."""
    publisher = TwentyFeeds()
    app = web.Application()
    app.router.add_get("/feeds/{feed}.xml", publisher.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        publisher.port = runner.addresses[0][1]
        yield publisher
    finally:
        await runner.cleanup()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of all values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
