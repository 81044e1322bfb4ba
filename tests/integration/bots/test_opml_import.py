"""Import of OPML lists: a worker fetches a list, each feed is subscribed to once, and a crash loses none."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from service.errors import AddressRefused, CoronetError, HostNotFound, LimitReached
from service.feeds import opml_writer
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.host_process import serve_programs
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.coordination.worker_requests import ProbeReply
from service.store.subscriptions.opml_imports import MAX_QUEUED_FEEDS
from tests.support.bot_in_process import Person, serving
from tests.support.channels import make_channel
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher
from tests.support.scripted_worker import scripted_worker
from tests.support.waiting import until
from workers.main import WorkerProgram

pytestmark = pytest.mark.parametrize("login", ["component"])

LIST = "/list.opml"
UNNAMED = "/mine"
LATER = LimitReached("example.org was asked often enough.")


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
    listed = OpmlDocument(tuple(OpmlSubscription(channel.url) for channel in channels))
    await store.user_imports.add(alice.jid, listed, settings.xmpp_jid)
    async with serving(settings, store):
        told = (await alice.wait_for(lambda message: "Your list is imported" in message.body)).body
        assert "5 new subscriptions" in told
        assert "2 couldn't be added:" in told

        async def has_ended() -> bool:
            return await store.user_imports.users(settings.xmpp_jid) == []

        await until(has_ended, "the import is removed")
    assert len(await store.subscriptions.of_user(alice.jid)) == 5


@pytest.mark.usefixtures("bot")
async def test_the_number_of_queued_lists_is_limited(store: Store, person: Person) -> None:
    alice = await person()
    feeds = tuple(OpmlSubscription(f"https://example.org/{number}") for number in range(MAX_QUEUED_FEEDS))
    await store.user_imports.add(alice.jid, OpmlDocument(feeds), "another-bot.example")
    assert "still being imported" in await alice.say(f"import {opml_writer.write('Mine', feeds[:1]).decode()}")
    assert len(await store.user_imports.pending(user_id(alice.jid))) == MAX_QUEUED_FEEDS


async def test_progress_is_one_message_that_is_corrected_until_the_result(
    store: Store, person: Person, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bots.dialogue.opml_import.PROGRESS_INTERVAL_S", 0.3)
    monkeypatch.setattr("service.opml_import_runner._RETRY_DELAY_S", 0.1)
    alice = await person()
    await store.users.mark_welcomed(alice.jid)
    urls = [f"https://example.org/{number}" for number in range(3)]
    script: dict[str, ProbeReply | CoronetError | None] = {urls[0]: None, urls[1]: LATER, urls[2]: LATER}
    async with serving(settings, store), scripted_worker(store, script):
        listed = opml_writer.write("Mine", [OpmlSubscription(url) for url in urls]).decode()
        alice.send(f"import {listed}")
        first = await alice.wait_for(lambda message: "1 of 3 feeds done" in message.body)
        assert not first.replaces
        assert "1 of 3" in await alice.say("import status")
        script[urls[1]] = HostNotFound("example.org has no address.")
        second = await alice.wait_for(lambda message: "2 of 3 feeds done" in message.body and not message.thread)
        assert second.replaces == first.id
        script[urls[2]] = None
        result = await alice.wait_for(lambda message: "Your list is imported" in message.body)
        assert not result.replaces
        assert "2 new subscriptions. 1 couldn't be added:" in result.body
        last = await alice.wait_for(lambda message: "3 of 3 feeds done (new: 2" in message.body)
        assert last.replaces == first.id
        told = [message for message in alice.received if "Importing your list" in message.body and not message.thread]
        assert [message.id for message in told if not message.replaces] == [first.id]
        assert await alice.say("import status") == "No list is being imported right now."


@pytest.mark.usefixtures("bot")
async def test_a_stopped_import_keeps_what_it_has_added(store: Store, person: Person) -> None:
    alice = await person()
    known = await make_channel(store, "https://example.org/known")
    feeds = [OpmlSubscription(url) for url in (known.url, "https://example.org/1", "https://example.org/2")]
    alice.send(f"import {opml_writer.write('Mine', feeds).decode()}")

    async def is_one_added() -> bool:
        return "1 of 3 feeds" in await alice.say("status")

    await until(is_one_added, "the known feed is subscribed to; no worker can look at the others")
    assert "stopped" in await alice.say("import stop")
    await alice.wait_for(lambda message: message.body == "Your list is imported: 1 new subscription.", 30)
    assert len(await store.subscriptions.of_user(alice.jid)) == 1


@pytest.mark.usefixtures("bot")
async def test_forget_me_drops_an_import_without_a_result(store: Store, person: Person) -> None:
    alice = await person()
    alice.send(f"import {opml_writer.write('Mine', [OpmlSubscription('https://example.org/1')]).decode()}")
    await alice.wait_for(lambda message: "1 feed" in message.body)
    await alice.say("forget me")
    await alice.say("yes")
    assert await store.user_imports.progress(user_id(alice.jid)) is None
    assert await store.user_imports.users(alice.bot_jid) == []
    assert not [message for message in alice.received if "Your list is imported" in message.body]


@pytest.mark.usefixtures("bot")
async def test_many_failures_come_as_a_file_with_their_lines(store: Store, person: Person) -> None:
    alice = await person()
    urls = [f"https://site{number}.example/" for number in range(5)]
    script = dict.fromkeys(urls, HostNotFound("It has no address."))
    outlines = "\n".join(f'<outline text="A" xmlUrl="{url}"/>' for url in (*urls, "ftp://example.org/"))
    async with scripted_worker(store, script):
        alice.send(f"import <opml><body>\n{outlines}</body></opml>")
        result = await alice.wait_for(lambda message: "Your list is imported" in message.body)
        assert result.body.endswith("0 new subscriptions. 6 couldn't be added:")
        shared = await alice.wait_for(lambda message: bool(message.file))
    async with aiohttp.ClientSession() as http, http.get(shared.file) as response:
        head, *rows = csv.reader(io.StringIO(await response.text(), newline=""))
    assert head == ["line", "url", "reason"]
    assert sorted((line, url) for line, url, _ in rows[1:]) == [(f"{n + 2}", url) for n, url in enumerate(urls)]
    assert {reason.partition("“")[0] for *_, reason in rows[1:]} == {"I can't find "}
    assert rows[0][2].startswith("Line 7: ")


@pytest.mark.usefixtures("bot")
async def test_titles_and_folders_of_the_list_are_kept_even_after_a_crash(store: Store, person: Person) -> None:
    alice = await person()
    known = [await make_channel(store, f"https://example.org/{number}") for number in range(2)]
    feeds = [OpmlSubscription(each.url, f"My {each.url[-1]}", folder="News") for each in known]
    await store.user_imports.add(alice.jid, OpmlDocument(tuple(feeds)), "a-bot-that-was-killed@localhost")
    await asyncio.sleep(1.1)  # the time of a subscription is stored in seconds
    await store.subscriptions.subscribe(alice.jid, known[0].id)  # the last thing that this bot did
    await store.redis.call("HSET", keys.USERS_WITH_IMPORTS, user_id(alice.jid), alice.bot_jid)
    await alice.wait_for(lambda message: "2 new subscriptions" in message.body)
    (preferences,) = await store.preferences.of_users([user_id(alice.jid)])
    assert {own.title: own.folder for own in preferences.values()} == {"My 0": "News", "My 1": "News"}


@pytest.mark.usefixtures("worker")
async def test_a_list_is_fetched_through_the_address_guard(store: Store) -> None:
    with pytest.raises(AddressRefused):
        await store.worker_requests.outline("http://10.0.0.1/list.opml")
