"""Channels that are fetched with a credential: creation, polls, refusals, keys, and deletion."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from pydantic import SecretStr

from bots.dialogue.channel_activation import subscribe_channel
from service.errors import BadStatus, CredentialUnreadable, NotSubscribed
from service.feeds.canonical_urls import SHARED, channel_id, protected_url
from service.feeds.credentials import parse_credential
from service.model import Channel
from service.net.credential_vault import CredentialVault
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_new_url_resolver_guesses import one_worker
from tests.support.feed_documents import item, page, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher, redirect
from tests.support.redis_contents import redis_contents
from tests.support.waiting import until
from workers.ownership import dormancy
from workers.polling.credential_reader import find_credential

ALICE, EVE = "alice@localhost", "eve@localhost"
KEY = "the-key-of-the-tests-with-32-characters"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"credentials_key": SecretStr(KEY)})


class Guarded:
    """A publisher that answers only requests with the right bearer token."""

    def __init__(self, publisher: RawPublisher) -> None:
        self.publisher = publisher
        self.token = "s3cret"
        self.entries = ["a"]
        publisher.handler = self.answer

    async def answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        if f"Authorization: Bearer {self.token}\r\n" not in head:
            writer.write(REFUSED)
        elif head.split()[1] == "/page":
            writer.write(ok(page(["/feed"]), "Content-Type: text/html"))
        elif head.split()[1] == "/moved":
            writer.write(redirect("/feed", 301))
        else:
            hub = f'<{self.publisher.url("/hub")}>; rel="hub"'
            body = rss([item(name, number=number) for number, name in enumerate(self.entries)])
            writer.write(ok(body, "Content-Type: application/rss+xml", f"Link: {hub}"))
        await writer.drain()


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[Guarded]:
    async def unset(_head: str, _writer: asyncio.StreamWriter) -> None: ...

    async with raw_publisher(unset) as publisher:
        yield Guarded(publisher)


def sealed(url: str, words: str) -> str:
    credential = parse_credential(words)
    assert credential is not None
    return CredentialVault(Settings(credentials_key=SecretStr(KEY))).seal(credential, url)


async def add(store: Store, url: str, reader: str = keys.user_id(ALICE), words: str = "token s3cret") -> Channel:
    """Add a protected channel like a bot."""
    url = protected_url(url, reader)
    channel = (await store.worker_requests.probe(url, credential=sealed(url, words))).channel
    assert channel is not None
    return channel


async def condition(store: Store, channel: Channel) -> str:
    found = await store.channels.get(channel.id)
    return found.condition if found else "deleted"


async def test_a_protected_channel_is_polled_with_its_credential_and_has_no_secret_in_redis(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    assert channel.url == protected_url(guarded.publisher.url(), keys.user_id(ALICE))
    await subscribe_channel(store, ALICE, channel.id, 9)
    guarded.entries.append("b")

    async def published() -> bool:
        return any(entry.title == "Title b" for entry in await store.channels.latest(channel.id, 5))

    await until(published, "a poll finds the new entry")
    assert "#" not in "".join(guarded.publisher.requests)
    assert [key for key, value in (await redis_contents(store)).items() if b"s3cret" in value] == []
    assert await store.websub.get_many([channel.id]) == [None]


async def test_a_refused_credential_is_not_stored(store: Store, start_worker: StartWorker, guarded: Guarded) -> None:
    await one_worker(store, start_worker)
    with pytest.raises(BadStatus):
        await add(store, guarded.publisher.url(), words="token wrong")
    assert await store.channels.ids_in_buckets(keys.REGISTRY_BUCKETS) == []
    await add(store, guarded.publisher.url())
    with pytest.raises(BadStatus):
        await add(store, guarded.publisher.url(), words="token wrong")
    await store.worker_requests.poll_now(channel_id(protected_url(guarded.publisher.url(), keys.user_id(ALICE))))
    assert "Bearer s3cret" in guarded.publisher.requests[-1]


async def test_a_feed_that_a_protected_page_names_is_protected_as_well(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url("/page"))
    assert channel.url == protected_url(guarded.publisher.url("/feed"), keys.user_id(ALICE))


async def test_a_permanent_redirect_does_not_move_a_protected_channel(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url("/moved"))
    result = await store.worker_requests.poll_now(channel.id)
    assert (result.outcome, await condition(store, channel)) == ("unchanged", "")
    assert await store.redis.call("HEXISTS", keys.channel(channel.id), "evidence") == 0


async def test_only_the_reader_may_subscribe_and_nobody_else_finds_the_channel(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    with pytest.raises(NotSubscribed):
        await subscribe_channel(store, EVE, channel.id, 9)
    await store.channels.set_listed(channel.id, listed=True)
    assert await Searcher(store, 1).filter_public([channel.id]) == {}
    shared = await add(store, guarded.publisher.url(), SHARED)
    await subscribe_channel(store, EVE, shared.id, 9)
    assert await Searcher(store, 1).filter_public([shared.id]) == {}


async def test_workers_neither_cache_nor_exchange_contents_of_protected_channels(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    guarded.entries.append("b")
    await store.worker_requests.poll_now(channel.id)
    for _ in range(2):
        assert (await store.worker_requests.content(channel.id)).source == "store"
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert state.digest == b""


async def test_a_refused_login_is_reported_once_until_it_has_worked_again(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    await subscribe_channel(store, ALICE, channel.id, 9)
    guarded.token = "new"

    async def notices() -> list[str]:
        return [str(each.notice.kind) for each in await store.channels.versions(channel.id, 20) if each.notice][::-1]

    async def is_refused() -> bool:
        return await condition(store, channel) == "refused"

    async def is_working() -> bool:
        return await condition(store, channel) == ""

    for _ in range(4):
        await store.worker_requests.poll_now(channel.id)
    await until(is_refused, "the refusal is reported")
    assert await notices() == ["refused"]
    assert (await add(store, guarded.publisher.url(), words="token new")).id == channel.id
    await until(is_working, "the next poll succeeds, although polls had become rare")
    assert await notices() == ["refused", "back"]
    guarded.token = "newer"
    for _ in range(2):
        await store.worker_requests.poll_now(channel.id)
    await until(is_refused, "the next refusal is reported")
    assert await notices() == ["refused", "back", "refused"]


async def test_a_protected_channel_without_subscribers_is_deleted_by_its_owner(
    store: Store, start_worker: StartWorker, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dormancy, "_EXPECTED_FOR_S", 2.0)
    await one_worker(store, start_worker)
    channel, shared = await add(store, guarded.publisher.url()), await add(store, guarded.publisher.url(), SHARED)
    for each in (channel, shared):
        await subscribe_channel(store, ALICE, each.id, 9)
        await store.subscriptions.unsubscribe(ALICE, each.id)

    async def is_deleted() -> bool:  # in two steps, the second of which deletes the key
        return not await store.redis.call("EXISTS", keys.channel(channel.id))

    await until(is_deleted, "the channel is deleted")
    assert await condition(store, shared) == ""


async def test_erasing_a_user_deletes_the_users_protected_channels_at_once(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel, shared = await add(store, guarded.publisher.url()), await add(store, guarded.publisher.url(), SHARED)
    for each in (channel, shared):
        await subscribe_channel(store, ALICE, each.id, 9)
    await store.erasure.erase(ALICE)
    assert (await condition(store, channel), await condition(store, shared)) == ("deleted", "")
    uid = keys.user_id(ALICE).encode()
    held = [key for key, value in (await redis_contents(store)).items() if uid in value]
    assert [key for key in held if key.startswith(b"cn:{c:")] == []


async def test_a_credential_is_sealed_again_with_the_first_key(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    both = CredentialVault(Settings(credentials_key=SecretStr(f"{'n' * 32} {KEY}")))
    expected = parse_credential("token s3cret")
    assert await find_credential(store.credentials, both, channel.url) == expected
    only_new = CredentialVault(Settings(credentials_key=SecretStr("n" * 32)))
    assert await find_credential(store.credentials, only_new, channel.url) == expected
    with pytest.raises(CredentialUnreadable):
        await find_credential(store.credentials, CredentialVault(Settings()), channel.url)
    result = await store.worker_requests.poll_now(channel.id)
    assert result.outcome == CredentialUnreadable.code, "the worker still has only the old key"


async def test_a_credential_that_was_moved_to_another_channel_in_redis_is_not_sent(
    store: Store, start_worker: StartWorker, guarded: Guarded
) -> None:
    await one_worker(store, start_worker)
    channel = await add(store, guarded.publisher.url())
    async with raw_publisher(guarded.answer) as thief:
        url = protected_url(thief.url(), keys.user_id(ALICE))
        stolen = msgspec.structs.replace(channel, id=channel_id(url), url=url)
        await store.redis.call("COPY", keys.channel(channel.id), keys.channel(stolen.id))
        await store.redis.call("HSET", keys.channel(stolen.id), "url", url)
        result = await store.worker_requests.poll_now(stolen.id)
        assert (result.outcome, thief.requests) == (CredentialUnreadable.code, [])
