"""Resolution of URLs: moved and dormant channels, probes that create nothing, hubs, and update rates."""

import asyncio
import time
from email.utils import formatdate
from typing import Literal

import pytest

from service.errors import LimitReached, NotSubscribed
from service.feeds.canonical_urls import channel_id, page_url
from service.model import Channel
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_new_url_resolver_guesses import one_worker
from tests.support.channels import count_channels, make_channel
from tests.support.feed_documents import item, page, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher
from tests.support.redis_contents import redis_contents
from tests.support.waiting import until
from tests.support.websub_hub import Hub

ALICE = "alice@localhost"
_FEED = rss([item("a")])


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with a public console URL and rare polls."""
    return settings.model_copy(update={"console_public_url": "https://console.example.org", "poll_interval_s": 3_600.0})


async def moved(store: Store, publisher: RawPublisher, *, dormant: bool) -> tuple[Channel, Channel]:
    """Create a channel whose subscribers have moved to another one, which may be dormant."""
    old, new = await make_channel(store, publisher.url("/old")), await make_channel(store, publisher.url("/new"))
    await store.redis.call("HSET", keys.channel(old.id), "moved_to", new.id, "dormant", "1")
    if dormant:
        await store.redis.call("HSET", keys.channel(new.id), "dormant", "1")
    return old, new


@pytest.mark.parametrize(("dormant", "asked"), [(False, []), (True, ["/new"])])
async def test_a_moved_channel_resolves_to_its_successor(
    store: Store, start_worker: StartWorker, *, dormant: bool, asked: list[str]
) -> None:
    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(_FEED, "Content-Type: application/rss+xml"))
        await writer.drain()

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        old, new = await moved(store, publisher, dormant=dormant)
        probed = await store.worker_requests.probe(old.url)
        assert probed.channel is not None
        assert (probed.channel.id, probed.channel.dormant) == (new.id, False)
        assert [head.split()[1] for head in publisher.requests] == asked


@pytest.mark.parametrize(("before", "now"), [("feed", "page"), ("page", "feed")])
async def test_a_dormant_channel_adopts_the_current_kind_of_its_url(
    store: Store, start_worker: StartWorker, before: Literal["feed", "page"], now: Literal["feed", "page"]
) -> None:
    bodies = {"feed": ok(_FEED, "Content-Type: application/rss+xml"), "page": ok(page(), "Content-Type: text/html")}
    answers = {"is": bodies[before]}

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answers["is"])
        await writer.drain()

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        was = (await store.worker_requests.probe(publisher.url(), as_page=before == "page")).channel
        assert was is not None
        await store.channels.mark_dormant(was.id)
        answers["is"] = bodies[now]
        probed = await store.worker_requests.probe(publisher.url(), as_page=now == "page")
        assert probed.channel is not None
        assert (probed.channel.id, probed.channel.kind, probed.channel.dormant) == (was.id, now, False)
        assert probed.latest[0].title == ("A page" if now == "page" else "Title a")


async def kept_in_redis(store: Store) -> dict[bytes, bytes]:
    """Return all keys in Redis except those that workers renew: the ring, leases, and the identity of the store."""
    found = await redis_contents(store, expiring=False)
    return {key: value for key, value in found.items() if b"{r}" not in key and key != keys.STORE_IDENTITY.encode()}


@pytest.mark.parametrize("as_page", [False, True])
async def test_a_probe_without_keep_writes_nothing_and_is_cached(
    store: Store, start_worker: StartWorker, *, as_page: bool
) -> None:
    body = ok(page(), "Content-Type: text/html") if as_page else ok(_FEED, "Content-Type: application/rss+xml")

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        await writer.drain()

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        before = await kept_in_redis(store)
        seen = await store.worker_requests.probe(publisher.url(), as_page=as_page, keep=False)
        assert await kept_in_redis(store) == before
        looks = len(publisher.requests)
        kept = await store.worker_requests.probe(publisher.url(), as_page=as_page)
        assert len(publisher.requests) == looks
        again = await store.worker_requests.probe(publisher.url(), as_page=as_page, keep=False)
    assert seen.channel is not None
    assert kept.channel is not None
    assert (seen.channel.id, seen.channel.title, seen.channel.kind) == (
        *(kept.channel.id, kept.channel.title, kept.channel.kind),
    )
    assert kept.channel.version == 1
    assert [entry.title for entry in seen.latest] == [entry.title for entry in kept.latest]
    assert again == kept


async def test_a_cached_page_with_one_feed_is_kept_as_that_feed(store: Store, start_worker: StartWorker) -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        named = ok(page(["/feed"]), "Content-Type: text/html")
        writer.write(ok(_FEED, "Content-Type: application/rss+xml") if "/feed" in head.splitlines()[0] else named)
        await writer.drain()

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        seen = await store.worker_requests.probe(publisher.url("/"), keep=False)
        assert await count_channels(store) == 0
        kept = await store.worker_requests.probe(publisher.url("/"))
    assert seen.channel is not None
    assert kept.channel is not None
    assert (seen.discovered, kept.discovered, kept.channel.url) == (True, True, publisher.url("/feed"))
    assert await count_channels(store) == 1


async def test_a_paused_channel_can_be_subscribed_to(store: Store, start_worker: StartWorker) -> None:
    await one_worker(store, start_worker)
    channel = await make_channel(store)
    await store.channels.mark_dormant(channel.id)
    await store.request_budgets.pause(channel.id, 1_000.0)
    assert (await store.worker_requests.probe(channel.url)).channel == await store.channels.get(channel.id)
    with pytest.raises(LimitReached):
        await store.worker_requests.probe(channel.url, as_page=True)


@pytest.mark.parametrize("named", ["in a header", "in the document"])
async def test_the_hub_of_a_new_channel_is_requested_after_the_probe(
    store: Store, start_worker: StartWorker, named: str
) -> None:
    hub = Hub(silent=True)

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        header, element = f'Link: <{hub.url}>; rel="hub"', f'<link xmlns="http://www.w3.org/2005/Atom" href="{hub.url}"'
        body = _FEED.replace(b"<channel>", f'<channel>{element} rel="hub"/>'.encode())
        headers = ("Content-Type: application/rss+xml",)
        writer.write(ok(_FEED, *headers, header) if named == "in a header" else ok(body, *headers))
        await writer.drain()

    async def asked() -> bool:
        return bool(hub.asked)

    await one_worker(store, start_worker)
    async with hub.open(), raw_publisher(answer) as publisher:
        await store.worker_requests.probe(publisher.url())
        await until(asked, "the hub is asked")
        assert [form["hub.topic"] for form in hub.asked] == [publisher.url()]


async def test_the_update_rate_of_a_new_channel_is_estimated_from_dates(
    store: Store, start_worker: StartWorker
) -> None:
    """Without the dates, the estimate for a feed with an update every minute would be "every 8 hours"."""
    dates = [formatdate(time.time() - 60 * number) for number in range(1, 21)]
    items = "".join(f"<item><guid>{date}</guid><title>Entry</title><pubDate>{date}</pubDate></item>" for date in dates)

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(f"<rss version='2.0'><channel><title>Often</title>{items}</channel></rss>".encode()))
        await writer.drain()

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        channel = (await store.worker_requests.probe(publisher.url())).channel
    assert channel is not None
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert state.updates.interval_s(time.time()) == pytest.approx(60, rel=0.15)


async def test_a_page_can_be_watched_with_another_selector_and_back(store: Store, start_worker: StartWorker) -> None:
    """Each time subscribers get one notice and no existing lines; later changes are sent."""
    shows = {"is": b"one"}

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        text = b"<p id=a>First " + shows["is"] + b"</p><p id=b>Second " + shows["is"] + b"</p>"
        writer.write(ok(text, "Content-Type: text/html"))
        await writer.drain()

    async def all_watch(url: str) -> None:
        async def watch() -> bool:
            held = await store.subscriptions.of_user(ALICE)
            return [each.channel for each in held] == [channel_id(url)]

        await until(watch, "everybody has moved")

    async def told() -> list[str]:
        batch = (await store.outbox.claim([keys.user_id(ALICE)], 20, time.time())).get(keys.user_id(ALICE))
        deltas = [await store.channels.delta(item.channel, item.version) for item in batch.items] if batch else []
        if batch:
            await store.outbox.complete(done=[(keys.user_id(ALICE), batch.message_id)])
        said = [each.notice.kind if each.notice else each.changes[0].entry.summary for each in deltas if each]
        return [words.splitlines()[0] for words in said]

    await one_worker(store, start_worker)
    async with raw_publisher(answer) as publisher:
        first, second = (page_url(publisher.url(), selector) for selector in ("#a", "#b"))
        await store.worker_requests.probe(first, as_page=True)
        await store.subscriptions.subscribe(ALICE, channel_id(first))
        for old, new, word in ((first, second, b"two"), (second, first, b"three")):
            seen = await store.worker_requests.probe(new, as_page=True, keep=False, afresh=True)
            assert seen.channel is not None
            assert seen.channel.url == new
            await store.worker_requests.probe(new, as_page=True, afresh=True)
            for _ in range(2):
                await store.worker_requests.move(channel_id(old), new)
            await all_watch(new)
            shows["is"] = word
            result = await store.worker_requests.poll_now(channel_id(new))
            assert result.outcome == "new"
            news = [*await until(told, "there is news")]
            if len(news) == 1:  # one claim may have both
                news += await until(told, "there is more news")
            moved, changed = news
            assert moved == "moved"
            assert changed.endswith(word.decode())
        with pytest.raises(NotSubscribed):
            await store.worker_requests.move("f" * 40, first)
