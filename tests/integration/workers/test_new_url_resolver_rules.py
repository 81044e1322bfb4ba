"""Rules for the feeds of well-known sites, from the URL that a person sends to the feed, through a worker.

The sites are stored pages, which a local publisher serves in their place.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio

from service.model import FeedLink
from service.net.fetcher import Fetcher, FetchResult
from service.store import Store
from service.store.coordination.worker_requests import ProbeReply
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_new_url_resolver_guesses import one_worker
from tests.support.feed_documents import atom, item
from tests.support.raw_http import RawPublisher, ok, raw_publisher

PAGES = Path(__file__).parents[2] / "unit" / "feeds" / "site_pages"
_VIDEOS = "https://www.youtube.com/feeds/videos.xml"
_CHANNEL = (
    FeedLink(f"{_VIDEOS}?channel_id=UCabcdefghijklmnopqrst-_", "All videos"),
    FeedLink(f"{_VIDEOS}?playlist_id=UULFabcdefghijklmnopqrst-_", "Videos without Shorts"),
)
SITES = {
    "www.youtube.com/@someone": "youtube_handle",
    "www.youtube.com/@other": "youtube_handle_without_links",
    "podcasts.apple.com/us/podcast/a-podcast/id1234567890": "apple_podcast",
    "feeds.podcasts.example/a-podcast": "",
    "github.com/owner/project/issues": "github_issues",
    "github.com/owner/project/releases.atom": "",
    "www.reddit.com/r/python/.rss": "",
    "bsky.app/profile/someone.example.com/rss": "",
    "www.youtube.com/feeds/videos.xml": "",
}
"""Maps hosts and paths to the names of stored pages; "" stands for a feed. Everything else is not found."""


@pytest_asyncio.fixture(autouse=True)
async def web(store: Store, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawPublisher]:
    """Serve all sites from this machine."""

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        name = SITES.get(head.split()[1].partition("?")[0][1:])
        if name is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        elif name:
            writer.write(ok((PAGES / f"{name}.html").read_bytes(), "Content-Type: text/html; charset=utf-8"))
        else:
            writer.write(ok(atom([item("a")]), "Content-Type: application/atom+xml"))
        await writer.drain()

    fetch = Fetcher.fetch

    async def fetch_here(self: Fetcher, url: str, *args: Any, **options: Any) -> FetchResult:
        parts = urlsplit(url)
        place = f"{publisher.url('/')}{parts.netloc}{parts.path}{f'?{parts.query}' if parts.query else ''}"
        return msgspec.structs.replace(await fetch(self, place, *args, **options), url=url)

    async def no_address(_self: Fetcher, _host: str) -> str:
        return ""

    monkeypatch.setattr(Fetcher, "fetch", fetch_here)
    monkeypatch.setattr(Fetcher, "address_of", no_address)
    async with raw_publisher(answer) as publisher:
        await one_worker(store, start_worker)
        yield publisher


@pytest.mark.parametrize("name", ["someone", "other"])
async def test_a_channel_of_videos_is_found_by_its_handle_and_may_be_chosen_without_shorts(
    store: Store, name: str
) -> None:
    assert await store.worker_requests.probe(f"https://www.youtube.com/@{name}") == ProbeReply(choices=_CHANNEL)
    chosen = await store.worker_requests.probe(_CHANNEL[1].url)
    assert chosen.channel is not None
    assert (chosen.channel.url, chosen.discovered) == (_CHANNEL[1].url, False)


@pytest.mark.parametrize(
    ("url", "feed"),
    [
        (
            "https://podcasts.apple.com/us/podcast/a-podcast/id1234567890",
            "https://feeds.podcasts.example/a-podcast?format=rss&token=1",
        ),
        ("https://old.reddit.com/r/python/top?t=week", "https://www.reddit.com/r/python/.rss"),
        ("https://bsky.app/profile/someone.example.com", "https://bsky.app/profile/someone.example.com/rss"),
        ("https://github.com/owner/project/releases", "https://github.com/owner/project/releases.atom"),
        ("https://www.youtube.com/playlist?list=PL0123456789", f"{_VIDEOS}?playlist_id=PL0123456789"),
    ],
)
async def test_the_feed_of_a_site_is_found(store: Store, url: str, feed: str) -> None:
    probed = await store.worker_requests.probe(url)
    assert probed.channel is not None
    assert (probed.channel.url, probed.discovered) == (feed, True)


async def test_the_feeds_of_a_repository_are_offered_after_one_was_found(store: Store, web: RawPublisher) -> None:
    project = "https://github.com/owner/project"
    assert await store.worker_requests.probe(project) == ProbeReply(
        choices=(FeedLink(f"{project}/releases.atom", "Releases"), FeedLink(f"{project}/commits.atom", "Commits"))
    )
    assert [head.split()[1] for head in web.requests] == ["/github.com/owner/project/releases.atom"]


async def test_issues_have_no_feed_so_that_their_page_is_offered(store: Store, web: RawPublisher) -> None:
    assert await store.worker_requests.probe("https://github.com/owner/project/issues") == ProbeReply(page=True)
    assert [head.split()[1] for head in web.requests] == ["/github.com/owner/project/issues"]
