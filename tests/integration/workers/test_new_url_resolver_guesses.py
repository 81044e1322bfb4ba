"""Pages that name no feed: two common feed URLs are tried, within the same limits."""

import asyncio
from collections.abc import Mapping

import pytest

from service.errors import NotAFeed
from service.store import Store
from service.store.coordination.worker_requests import ProbeReply
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import count_channels
from tests.support.feed_documents import item, page, rss
from tests.support.raw_http import Handler, ok, raw_publisher, redirect
from tests.support.waiting import until

_PAGE = ok(page(), "Content-Type: text/html; charset=utf-8")
_FEED = ok(rss([item("a")]), "Content-Type: application/rss+xml")
_NOTHING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def site(paths: Mapping[str, bytes]) -> Handler:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(paths.get(head.split()[1], _NOTHING))
        await writer.drain()

    return answer


async def one_worker(store: Store, start_worker: StartWorker) -> None:
    await start_worker()

    async def there() -> bool:
        return len(await store.ring.nodes()) == 1

    await until(there, "a node in the ring")


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ({"/blog/": _PAGE, "/feed": _FEED, "/rss.xml": _FEED}, "/feed"),
        ({"/blog/": _PAGE, "/rss.xml": _FEED}, "/rss.xml"),
        ({"/blog/": _PAGE, "/feed": _PAGE, "/rss.xml": _FEED}, "/rss.xml"),
        ({"/blog/": _PAGE, "/feed": redirect("ftp://example.com/"), "/rss.xml": _FEED}, "/rss.xml"),
    ],
)
async def test_a_feed_at_a_common_url_is_found(
    store: Store, start_worker: StartWorker, paths: dict[str, bytes], found: str
) -> None:
    await one_worker(store, start_worker)
    async with raw_publisher(site(paths)) as publisher:
        probed = await store.worker_requests.probe(publisher.url("/blog/"))
        assert probed.discovered
        assert probed.channel is not None
        assert probed.channel.url == publisher.url(found)


async def test_a_page_without_a_feed_can_be_watched_itself(store: Store, start_worker: StartWorker) -> None:
    await one_worker(store, start_worker)
    async with raw_publisher(site({"/blog/": _PAGE})) as publisher:
        assert await store.worker_requests.probe(publisher.url("/blog/")) == ProbeReply(page=True)
        assert [head.split()[1] for head in publisher.requests] == ["/blog/", "/feed", "/rss.xml"]
    assert await count_channels(store) == 0


async def test_common_urls_are_tried_only_for_a_page(store: Store, start_worker: StartWorker) -> None:
    await one_worker(store, start_worker)
    async with raw_publisher(site({"/blog/": ok(b"no page", "Content-Type: text/plain")})) as publisher:
        with pytest.raises(NotAFeed):
            await store.worker_requests.probe(publisher.url("/blog/"))
        assert [head.split()[1] for head in publisher.requests] == ["/blog/"]
    assert await count_channels(store) == 0
