"""Pages that name no feed: rules of sites, links in the body and common URLs are tried, within the same limits."""

import asyncio
from collections.abc import Mapping

import pytest

from service.errors import NotAFeed
from service.feeds.pages import feed_url_guesses
from service.model import FeedLink
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


def page_with_links(*targets: str) -> bytes:
    links = "".join(f'<a href="{target}">RSS</a>' for target in targets)
    return ok(f"<html><body><p>Hello.</p>{links}</body></html>".encode(), "Content-Type: text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("paths", "requests"),
    [
        ({"/blog/": page_with_links("/comments/feed/", "posts.rss"), "/blog/posts.rss": _FEED}, ["/blog/posts.rss"]),
        (
            {"/blog/": page_with_links("about.rss", "posts.rss"), "/blog/about.rss": _PAGE, "/blog/posts.rss": _FEED},
            ["/blog/about.rss", "/blog/posts.rss"],
        ),
        (
            {"/blog/": page_with_links("1.rss", "2.rss", "3.rss", "4.rss"), "/rss.xml": _FEED},
            ["/blog/1.rss", "/blog/2.rss", "/feed", "/rss.xml"],
        ),
        ({"/@someone": _PAGE, "/@someone.rss": _FEED}, ["/@someone.rss"]),
    ],
)
async def test_links_in_the_body_are_tried_before_common_urls(
    store: Store, start_worker: StartWorker, paths: dict[str, bytes], requests: list[str]
) -> None:
    await one_worker(store, start_worker)
    (first, *_) = paths
    async with raw_publisher(site(paths)) as publisher:
        probed = await store.worker_requests.probe(publisher.url(first))
        assert probed.channel is not None
        assert (probed.discovered, probed.channel.url) == (True, publisher.url(requests[-1]))
        asked = [head.split()[1] for head in publisher.requests]
        assert asked[: len(requests) + 1] == [first, *requests]


@pytest.mark.parametrize(
    ("feeds", "paths", "expected"),
    [
        ({"": "/only"}, {"/only": _FEED, "/profile": _PAGE}, "/only"),
        ({"": "/only"}, {"/profile": ok(page(["/linked"]), "Content-Type: text/html"), "/linked": _FEED}, "/linked"),
        ({"One": "/one", "Two": "/two"}, {"/one": _FEED}, ["/one", "/two"]),
        ({"One": "/one", "Two": "/two"}, {"/profile": _PAGE, "/feed": _FEED}, None),
        ({}, {"/profile": _PAGE, "/feed": _FEED}, None),
    ],
)
async def test_feeds_of_a_rule_are_tried_before_the_page(
    store: Store,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    *,
    feeds: dict[str, str],
    paths: dict[str, bytes],
    expected: str | list[str] | None,
) -> None:
    await one_worker(store, start_worker)
    async with raw_publisher(site(paths)) as publisher:
        templates = {title: publisher.url(path) for title, path in feeds.items()}
        rule = feed_url_guesses._Rule(rf"127\.0\.0\.1:{publisher.port}/profile", templates)
        monkeypatch.setattr(feed_url_guesses, "_RULES", (rule,))
        probed = await store.worker_requests.probe(publisher.url("/profile"))
        if isinstance(expected, str):
            assert probed.channel is not None
            assert (probed.discovered, probed.channel.url) == (True, publisher.url(expected))
        elif expected is None:
            assert probed == ProbeReply(page=True), "the rule states which feeds there are, so no others are guessed"
        else:
            assert probed == ProbeReply(
                choices=tuple(FeedLink(publisher.url(path), title) for title, path in feeds.items())
            )
            assert [head.split()[1] for head in publisher.requests] == expected[:1]
