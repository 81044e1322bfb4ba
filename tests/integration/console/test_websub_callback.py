"""WebSub callbacks: verification, signed pushes, and limits."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from service.console import websub_callback
from service.feeds.websub_protocol import HubState, HubTopic, Status, record_request
from service.model import Channel
from service.store import Store
from service.store.channels.websub_store import MAX_QUEUED_PUSHES, PUSHES_PER_MINUTE, Push
from tests.support.channels import make_channel
from tests.support.waiting import until_so

TOPIC, SECRET, TOKEN = "https://example.org/feed", "a-secret", "a-token"
ASKED = record_request(HubState(HubTopic("https://hub.example/", TOPIC), SECRET, TOKEN), 1_000.0)
MEBIBYTE = 1024 * 1024


@pytest_asyncio.fixture
async def hub(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client for the console."""
    async with aiohttp.ClientSession(served[0]) as session:
        yield session


@pytest_asyncio.fixture
async def channel(store: Store) -> Channel:
    """A channel with a requested hub subscription."""
    made = await make_channel(store, TOPIC, listed=True)
    await store.websub.compare_and_set(made.id, None, ASKED)
    return made


async def _verify(hub: aiohttp.ClientSession, channel: Channel, token: str = TOKEN, **said: str) -> tuple[int, str]:
    query = {"mode": "subscribe", "topic": TOPIC, "challenge": "a-challenge", "lease_seconds": "3600"} | said
    url = f"/websub/{channel.id}/{token}"
    async with hub.get(url, params={f"hub.{name}": value for name, value in query.items()}) as answer:
        assert answer.content_type == "text/plain" or answer.status != 200
        return answer.status, await answer.text()


async def _push(
    hub: aiohttp.ClientSession, channel: Channel, body: bytes, *, token: str = TOKEN, secret: str = SECRET
) -> int:
    signature = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    headers = {"X-Hub-Signature": signature, "Content-Type": "application/atom+xml"}
    async with hub.post(f"/websub/{channel.id}/{token}", data=BytesIO(body), headers=headers) as answer:
        return answer.status


@dataclass
class Sending:
    """A push whose last byte is not sent until its ``end``."""

    answer: "asyncio.Task[int]"
    end: asyncio.Event

    async def status(self) -> int:
        return await self.answer


@asynccontextmanager
async def sending(
    app: web.Application, hub: aiohttp.ClientSession, channel: Channel, body: bytes
) -> AsyncIterator[Sending]:
    """Start a push, and continue once the console has started to read it."""
    end = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:-1]
        await end.wait()
        yield body[-1:]

    async def push() -> int:
        signature = f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"
        headers = {"X-Hub-Signature": signature}
        async with hub.post(f"/websub/{channel.id}/{TOKEN}", data=slowly(), headers=headers) as answer:
            return answer.status

    task = asyncio.create_task(push())
    try:
        await until_so(
            lambda: app[websub_callback.PUSH_READER].size_bytes >= len(body) - 1, "all but the last byte has come"
        )
        yield Sending(task, end)
    finally:
        end.set()
        await asyncio.gather(task, return_exceptions=True)


async def _status(store: Store, channel: Channel) -> Status | None:
    state = await store.websub.get(channel.id)
    return state.status if state else None


async def test_a_requested_subscription_is_confirmed_with_the_challenge(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    assert await _verify(hub, channel, challenge="<b>é</b>") == (200, "<b>é</b>")
    assert await _status(store, channel) == "verified"


@pytest.mark.parametrize(
    "said", [{"topic": "https://example.org/other"}, {"mode": "unsubscribe"}, {"mode": "publish"}, {"token": "a-tokem"}]
)
async def test_an_unrequested_subscription_is_not_confirmed(
    store: Store, hub: aiohttp.ClientSession, channel: Channel, said: dict[str, str]
) -> None:
    assert await _verify(hub, channel, **said) == (404, "")
    assert await _status(store, channel) == "pending"


async def test_a_denial_by_the_hub_is_recorded(store: Store, hub: aiohttp.ClientSession, channel: Channel) -> None:
    assert (await _verify(hub, channel, mode="denied"))[0] == 200
    assert await _status(store, channel) == "refused"


async def test_an_unsubscription_is_confirmed_and_the_hub_forgotten(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    await store.websub.compare_and_set(channel.id, ASKED, msgspec.structs.replace(ASKED, status="leaving"))
    assert await _push(hub, channel, b"late news") == 410
    assert (await _verify(hub, channel, mode="unsubscribe"))[0] == 200
    assert await store.websub.get(channel.id) is None
    assert await _push(hub, channel, b"later news") == 404


async def test_a_signed_push_reaches_the_channels_owner(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    me = await store.ring.join("w1", "", 60.0, lambda _: "a" * 40)
    assert await _push(hub, channel, b"<feed/>") == 202
    letters, _ = await store.node_inboxes.read(me.id, "0")
    assert [(letter.kind, letter.payload.decode()) for letter in letters] == [("push", channel.id)]
    assert await store.websub.take_pushes(channel.id) == [Push(b"<feed/>", "application/atom+xml")]
    assert await store.websub.take_pushes(channel.id) == []


@pytest.mark.parametrize("secret", ["", "a-secreu"])
async def test_a_push_with_a_wrong_signature_is_accepted_and_ignored(
    store: Store, hub: aiohttp.ClientSession, channel: Channel, secret: str
) -> None:
    assert await _push(hub, channel, b"<feed/>", secret=secret) == 202
    assert await store.websub.take_pushes(channel.id) == []


async def test_a_wrong_token_or_channel_is_not_found(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    other = await make_channel(store, "https://example.org/other", listed=True)
    assert await _push(hub, channel, b"x", token="a-tokem") == 404
    assert await _push(hub, channel, b"x", token="%ff%ed%a0%80") == 404
    assert await _push(hub, other, b"x") == 404
    assert await store.websub.take_pushes(channel.id) == await store.websub.take_pushes(other.id) == []


async def test_pushes_are_accepted_up_to_five_mebibytes(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    async def in_chunks() -> AsyncIterator[bytes]:
        for _ in range(6):
            yield b"x" * MEBIBYTE

    assert await _push(hub, channel, b"x" * 5 * MEBIBYTE) == 202
    assert await _push(hub, channel, b"x" * (5 * MEBIBYTE + 1)) == 413
    try:
        async with hub.post(f"/websub/{channel.id}/a-token", data=in_chunks()) as answer:
            assert answer.status == 413
    except aiohttp.ClientConnectionError:
        pass  # closed in our face while we were still talking: refused as well
    assert [len(push.body) for push in await store.websub.take_pushes(channel.id)] == [5 * MEBIBYTE]


async def test_a_repeated_push_is_stored_once(store: Store, hub: aiohttp.ClientSession, channel: Channel) -> None:
    assert [await _push(hub, channel, b"<feed/>") for _ in range(5)] == [202] * 5
    assert len(await store.websub.take_pushes(channel.id)) == 1


async def test_too_many_queued_pushes_become_one_poll(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    for number in range(MAX_QUEUED_PUSHES + 1):
        await _push(hub, channel, b"<feed>%d</feed>" % number)
    assert await store.websub.take_pushes(channel.id) == [Push()]


async def test_pushes_are_limited_per_minute(store: Store, hub: aiohttp.ClientSession, channel: Channel) -> None:
    answers = [await _push(hub, channel, b"<feed/>") for _ in range(100)]
    assert answers == [202] * PUSHES_PER_MINUTE + [429] * (100 - PUSHES_PER_MINUTE)
    assert await store.websub.take_pushes(channel.id) == [Push()], "the rest becomes one poll"


async def test_only_one_push_of_a_channel_is_read_at_a_time(
    served: tuple[str, web.Application], store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    async with sending(served[1], hub, channel, b"<feed>1</feed>") as first:
        assert await _push(hub, channel, b"<feed>2</feed>") == 202
        assert await store.websub.take_pushes(channel.id) == [Push()], "it becomes a poll"
        first.end.set()
        assert await first.status() == 202
    assert [push.body for push in await store.websub.take_pushes(channel.id)] == [b"<feed>1</feed>"]


async def test_concurrent_pushes_share_a_memory_limit(
    served: tuple[str, web.Application],
    store: Store,
    hub: aiohttp.ClientSession,
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websub_callback, "_MAX_TOTAL_BYTES", 2 * MEBIBYTE)
    other = await make_channel(store, "https://example.org/other", listed=True)
    await store.websub.compare_and_set(other.id, None, ASKED)
    async with sending(served[1], hub, channel, b"x" * MEBIBYTE) as first:
        assert await _push(hub, other, b"y" * 2 * MEBIBYTE) == 202
        assert await store.websub.take_pushes(other.id) == [Push()]
        assert await _push(hub, other, b"<feed/>") == 202
        assert [push.body for push in await store.websub.take_pushes(other.id)] == [b"<feed/>"]
        first.end.set()
        assert await first.status() == 202


async def test_a_slow_push_becomes_a_poll(
    served: tuple[str, web.Application],
    store: Store,
    hub: aiohttp.ClientSession,
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websub_callback, "_BODY_TIMEOUT_S", 0.1)
    async with sending(served[1], hub, channel, b"<feed/>") as first:
        assert await first.status() == 202
    assert await store.websub.take_pushes(channel.id) == [Push()]


async def test_a_push_of_a_dormant_channel_unsubscribes_from_the_hub(
    store: Store, hub: aiohttp.ClientSession, channel: Channel
) -> None:
    await _verify(hub, channel)
    await store.remove_channel(channel.id)
    assert await _push(hub, channel, b"<feed/>") == 410
    assert await _status(store, channel) == "leaving"
