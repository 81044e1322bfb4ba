"""Articles for full texts: a worker reads them before it stores a version, and never delays the version for long."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.model import Change, Channel
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_new_url_resolver_guesses import one_worker
from tests.integration.workers.test_worker_fleet import subscribed
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher, redirect
from tests.support.waiting import until, until_so

ARTICLE = "This is what the article says, in a paragraph that is long enough to be one. " * 5
PAGE = ok(
    f"<html><head><title>A site</title></head><body><nav><a href='/'>Home</a></nav><article><h1>A title</h1>"
    f"<p>{ARTICLE}</p><p>{ARTICLE}</p></article><footer>Imprint</footer></body></html>".encode(),
    "Content-Type: text/html; charset=utf-8",
)
EMPTY = ok(b"<html><body></body></html>", "Content-Type: text/html")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with which articles may take four seconds."""
    return settings.model_copy(update={"maintenance_interval_s": 10.0})


class Site:
    """A site with a feed, whose entries link to its pages."""

    def __init__(self) -> None:
        self.entries = ["first"]
        self.pages: dict[str, bytes] = {}
        self.publisher: RawPublisher

    def asked(self) -> list[str]:
        """Return the names of the pages that were requested."""
        return [path[1:] for head in self.publisher.requests if (path := head.split()[1]) != "/feed"]

    async def answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split()[1]
        if path == "/feed":
            entries = [item(name, link=self.publisher.url(f"/{name}"), summary="Own text.") for name in self.entries]
            writer.write(ok(rss(entries), "Content-Type: application/rss+xml"))
        elif path != "/slow":
            writer.write(self.pages.get(path[1:], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
        await writer.drain()


@pytest_asyncio.fixture
async def site(store: Store, start_worker: StartWorker) -> AsyncIterator[Site]:
    await one_worker(store, start_worker)
    serving = Site()
    async with raw_publisher(serving.answer) as serving.publisher:
        yield serving


async def next_changes(store: Store, channel: Channel, site: Site, *names: str) -> dict[str, Change]:
    """Publish entries and return the changes in the next version, by the title of the entry."""
    before = await store.channels.get(channel.id)
    assert before is not None
    site.entries = [*names, *site.entries]
    delta = await until(lambda: store.channels.delta(channel.id, before.version + 1), "the version is stored")
    assert delta is not None
    return {change.entry.title: change for change in delta.changes}


async def first_article(store: Store, channel: Channel, site: Site) -> Change:
    """Publish entries until one has a full text, because the first parser process may start too slowly."""
    for number in range(20):
        name = f"page{number}"
        site.pages[name] = PAGE
        (change,) = (await next_changes(store, channel, site, name)).values()
        if change.entry.full_text:
            return change
    raise AssertionError("no article was read")


async def test_new_entries_get_full_texts_only_while_these_are_requested(store: Store, site: Site) -> None:
    channel = await subscribed(store, site.publisher.url())
    site.pages["one"] = PAGE
    (change,) = (await next_changes(store, channel, site, "one")).values()
    assert (change.entry.full_text, site.asked()) == ("", [])
    await store.channels.request_full_texts([channel.id])
    change = await first_article(store, channel, site)
    assert f"{change.entry.full_text} ".endswith(ARTICLE)
    assert "Home" not in change.entry.full_text
    assert change.entry.summary == "Own text."
    assert all(not entry.full_text for entry in await store.channels.latest(channel.id, 5))
    await store.redis.call("HSET", keys.channel(channel.id), "full_texts", int(time.time()) - 1)
    asked = site.asked()
    (change,) = (await next_changes(store, channel, site, "three")).values()
    assert (change.entry.full_text, site.asked()) == ("", asked)


async def test_the_next_polls_find_no_edits_because_of_full_texts(store: Store, site: Site) -> None:
    channel = await subscribed(store, site.publisher.url())
    await store.channels.request_full_texts([channel.id])
    site.pages = {"one": PAGE, "two": PAGE}
    await next_changes(store, channel, site, "one")
    changes = await next_changes(store, channel, site, "two")
    assert {title: change.kind for title, change in changes.items()} == {"Title two": "addition"}


async def test_unreadable_pages_delay_the_version_briefly_and_lose_nothing(store: Store, site: Site) -> None:
    channel = await subscribed(store, site.publisher.url())
    await store.channels.request_full_texts([channel.id])
    await first_article(store, channel, site)
    site.pages |= {"good": PAGE, "empty": EMPTY, "away": redirect("http://10.0.0.1/")}
    changes = await next_changes(store, channel, site, "slow", "gone", "empty", "away", "good")
    assert {title: bool(change.entry.full_text) for title, change in changes.items()} == {
        **dict.fromkeys(("Title slow", "Title gone", "Title empty", "Title away"), False),
        "Title good": True,
    }
    assert {"slow", "gone", "empty", "away", "good"} <= set(site.asked())


async def test_a_version_whose_owner_stops_while_it_reads_is_stored_by_the_next_owner(
    store: Store, start_worker: StartWorker
) -> None:
    first, site = await start_worker(), Site()
    async with raw_publisher(site.answer) as site.publisher:
        await until(store.ring.nodes, "a node in the ring")
        channel = await subscribed(store, site.publisher.url())
        await store.channels.request_full_texts([channel.id])
        site.entries = ["slow", *site.entries]
        await until_so(lambda: site.asked() == ["slow"], "the article is requested")
        first.cancel()
        await start_worker()
        delta = await until(lambda: store.channels.delta(channel.id, 2), "the version is stored")
        assert delta is not None
        assert [change.entry.title for change in delta.changes] == ["Title slow"]


async def test_a_blocked_host_is_not_asked_for_articles(store: Store, site: Site) -> None:
    channel = await subscribed(store, site.publisher.url())
    await store.channels.request_full_texts([channel.id])
    await store.blocked_hosts.add("example.org", HostBlock("ada", 1.0))
    site.pages = {"one": redirect("http://example.org/article")}
    (change,) = (await next_changes(store, channel, site, "one")).values()
    assert change.entry.full_text == ""
