"""Import of OPML lists: a worker fetches a list, each feed is subscribed to once, and a crash loses none."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bots.dialogue.opml_import import MAX_QUEUED_FEEDS
from service.errors import AddressRefused
from service.feeds import opml_writer
from service.feeds.opml_writer import OpmlSubscription
from service.host_process import serve_programs
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import Person, serving
from tests.support.channels import make_channel
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher
from tests.support.waiting import until
from workers.main import WorkerProgram

pytestmark = pytest.mark.parametrize("login", ["component"])

LIST = "/list.opml"
UNNAMED = "/mine"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings of a bot and a fleet that may connect to loopback, where the feeds are."""
    return settings.model_copy(update={"allow_private": True, "max_subscriptions_per_user": 5, "lease_ttl_s": 1.0})


@pytest_asyncio.fixture
async def publisher() -> AsyncIterator[RawPublisher]:
    """A publisher of a list with four feeds, one of which does not exist."""

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split()[1]
        if path in (LIST, UNNAMED):
            feeds = [
                OpmlSubscription(running.url(f"/{name}"), f"My {name}", folder="Pets" if name == "b" else "")
                for name in ("a", "b", "c", "gone")
            ]
            writer.write(ok(opml_writer.write("Mine", feeds), "Content-Type: text/x-opml"))
        elif path == "/gone":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            writer.write(ok(rss([item(path)]), "Content-Type: application/rss+xml"))
        await writer.drain()

    async with raw_publisher(answer) as running:
        yield running


@pytest_asyncio.fixture
async def worker(settings: Settings, store: Store) -> AsyncIterator[None]:
    running = asyncio.create_task(serve_programs(settings, [WorkerProgram]))
    try:
        await until(store.ring.nodes, "a worker is there")
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.usefixtures("bot", "worker")
async def test_a_list_at_a_url_is_imported_and_the_user_is_notified(person: Person, publisher: RawPublisher) -> None:
    alice = await person()
    assert "4 feeds" in await alice.say(f"import {publisher.url(LIST)}")
    told = (await alice.wait_for(lambda message: "Your list is imported" in message.body)).body
    assert "3 new subscriptions" in told
    assert "1 couldn't be added:" in told
    assert "404" in told
    assert "#1 My " in await alice.say("list"), "it is called what the list calls it"
    assert "Folder *Pets* (1 of 3):" in await alice.say("list pets")
    exported = await alice.say("export")
    assert '<outline text="Pets">' in exported
    assert "3 new" not in await alice.say(f"import {publisher.url(LIST)}")
    again = await alice.wait_for(lambda message: "You were already subscribed to 3." in message.body)
    assert "0 new subscriptions" in again.body


@pytest.mark.usefixtures("bot", "worker")
async def test_a_subscription_to_the_url_of_a_list_imports_it(person: Person, publisher: RawPublisher) -> None:
    alice = await person()
    assert "4 feeds" in await alice.say(publisher.url(UNNAMED))
    await alice.wait_for(lambda message: "3 new subscriptions" in message.body)


@pytest.mark.usefixtures("bot", "worker")
async def test_a_list_sent_as_text_is_imported(person: Person, publisher: RawPublisher) -> None:
    alice = await person()
    listed = opml_writer.write("Mine", [OpmlSubscription(publisher.url("/a"), "A")]).decode()
    assert "1 feed" in await alice.say(f"import {listed}")
    await alice.wait_for(lambda message: "1 new subscription" in message.body)
    assert "not OPML" in await alice.say("import <html>a page</html>")


async def test_the_next_bot_continues_an_import_up_to_the_limit(
    store: Store, person: Person, settings: Settings
) -> None:
    alice = await person()
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(7)]
    await store.users.mark_welcomed(alice.jid)
    await store.import_queue.add(alice.jid, [OpmlSubscription(channel.url) for channel in channels], settings.xmpp_jid)
    async with serving(settings, store):
        told = (await alice.wait_for(lambda message: "Your list is imported" in message.body)).body
        assert "5 new subscriptions" in told
        assert "2 couldn't be added:" in told
    assert len(await store.subscriptions.of_user(alice.jid)) == 5
    assert await store.import_queue.users(settings.xmpp_jid) == []


@pytest.mark.usefixtures("bot")
async def test_the_number_of_queued_lists_is_limited(store: Store, person: Person) -> None:
    alice = await person()
    feeds = [OpmlSubscription(f"https://example.org/{number}") for number in range(MAX_QUEUED_FEEDS)]
    await store.import_queue.add(alice.jid, feeds, "another-bot.example")
    assert "still being imported" in await alice.say(f"import {opml_writer.write('Mine', feeds[:1]).decode()}")
    assert await store.import_queue.count(alice.jid) == MAX_QUEUED_FEEDS


@pytest.mark.usefixtures("worker")
async def test_a_list_is_fetched_through_the_address_guard(store: Store) -> None:
    with pytest.raises(AddressRefused):
        await store.worker_requests.outline("http://10.0.0.1/list.opml")
