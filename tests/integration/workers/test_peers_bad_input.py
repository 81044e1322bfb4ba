"""Malformed requests and responses between workers: they are refused and counted, and change nothing."""

import time
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from aiohttp import web

from service.errors import PeerProtocolError, PeerUnreachable
from service.location import messages
from service.location.bloom_filters import MAX_WIDTH, FilterShape
from service.location.messages import FilterUpdate, Hello, StreamBatch
from service.net.peer_client import MAX_REQUEST_BYTES, PeerClient
from service.net.peer_request_signatures import WINDOW_S, RequestSigner
from service.store import Store
from tests.support.channels import make_channel
from tests.support.peer_workers import (
    SECRET,
    Worker,
    fleet,
    introduce,
    known,
    linked,
    owned_by,
    posted,
    refused,
    some_content,
    worker,
)
from tests.support.waiting import until_so

STRANGER = "f" * 40


async def test_a_response_that_is_too_large_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as liar:
        channel = await owned_by(store, liar, introduce([asker, liar]))
        monkeypatch.setitem(liar.peers._handlers, "find", lambda _sender, _body: b"\x01" * (5 * 1024 * 1024))
        before = refused("size")
        assert (await asker.locate(channel, b"\2" * 16)).source == "publisher"
        assert refused("size") == before + 1


async def test_an_endless_response_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its headers say about its length."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"\x01" * 65_536

    async def streamed(*_: object) -> web.Response:
        return web.Response(body=endless())

    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as liar:
        channel = await owned_by(store, liar, introduce([asker, liar]))
        monkeypatch.setattr(liar.peers, "_handle", streamed)
        before = refused("size")
        assert (await asker.locate(channel, b"\2" * 16)).source == "publisher"
        assert refused("size") > before


@pytest.mark.parametrize("forged", ["", "0" * 64, "of another request"])
async def test_a_response_without_a_valid_signature_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as liar:
        channel = await owned_by(store, liar, introduce([asker, liar]))
        for each in (asker, liar):
            await each.peers._overlay.wait_until_ready()  # the pings are over
        digest = liar.has(channel, some_content("news"))
        signer = liar.peers._signer
        of_another = signer.response_mac
        monkeypatch.setattr(
            signer,
            "response_mac",
            lambda _nonce, status, body: of_another("1" * 24, status, body) if " " in forged else forged,
        )
        before = refused("signature")
        assert (await asker.locate(channel, digest)).source == "publisher"
        assert refused("signature") == before + 1


def sealed(to: Worker, verb: str, body: bytes, *, secret: str = SECRET, late_s: float = 0.0, for_: str = "") -> str:
    now_s = time.time() + late_s
    return RequestSigner(secret, STRANGER).sign(for_ or to.me.id, verb, body, "0" * 24, now_s).header()


Forged = Callable[[Worker, bytes], str]


@pytest.mark.parametrize(
    ("reason", "forged"),
    [
        ("signature", lambda _to, _body: ""),
        ("signature", lambda _to, _body: "coronet1 x y z"),
        ("signature", lambda to, body: sealed(to, "find", body, secret="another's")),
        ("signature", lambda to, body: sealed(to, "tell", body)),
        ("signature", lambda to, body: sealed(to, "find", body + b"!")),
        ("signature", lambda to, body: sealed(to, "find", body, for_="1" * 40)),
        ("late", lambda to, body: sealed(to, "find", body, late_s=-WINDOW_S - 1)),
        ("late", lambda to, body: sealed(to, "find", body, late_s=WINDOW_S + 1)),
    ],
)
async def test_a_request_without_a_valid_signature_is_refused_and_counted(
    store: Store, reason: str, forged: Forged
) -> None:
    async with worker(store, "0" * 40) as here:
        body, before = b"\0" * 17, refused(reason)
        assert await posted(here, "find", body, forged(here, body)) == 403
        assert refused(reason) == before + 1
        assert await posted(here, "find", body, sealed(here, "find", body)) == 200


async def test_a_repeated_request_is_refused(store: Store) -> None:
    async with worker(store, "0" * 40) as here:
        body, before = b"\0" * 17, refused("replay")
        seal = sealed(here, "find", body)
        assert await posted(here, "find", body, seal) == 200
        assert await posted(here, "find", body, seal) == 403
        assert refused("replay") == before + 1


async def test_a_request_that_is_too_large_is_refused(store: Store) -> None:
    async with worker(store, "0" * 40) as here:
        body, before = b"\0" * (MAX_REQUEST_BYTES + 1), refused("size")
        assert await posted(here, "find", body, sealed(here, "find", body)) == 403
        assert refused("size") == before + 1


async def test_an_unknown_worker_or_verb_is_not_found(store: Store) -> None:
    async with worker(store, "0" * 40) as here:
        assert await posted(here, "ping", b"", sealed(here, "ping", b""), worker_id="1" * 40) == 404
        assert await posted(here, "dance", b"", sealed(here, "dance", b"")) == 404


@pytest.mark.parametrize(
    ("verb", "body", "reason"),
    [
        ("find", b"", "malformed"),
        ("find", b"\0" * 16 + b"\xff", "malformed"),
        ("find", b"\0" * 16 + b"\1" + b"\0" * 21, "malformed"),
        ("find", b"\0" * 17 + b"\0" * 20 * 12, "malformed"),
        ("tell", b"", "malformed"),
        ("tell", b"\xc1", "malformed"),
        ("tell", msgspec.msgpack.encode(StreamBatch(b"short", None, 0, ())), "malformed"),
        ("tell", msgspec.msgpack.encode((b"8 bytes!", None, -1, ())), "malformed"),
        ("tell", msgspec.msgpack.encode(StreamBatch(b"8 bytes!", None, 0, ())), "stranger"),
        ("messages", b"", "malformed"),
        ("messages", b"\xdd\xff\xff\xff\xff" + b"\x94" * 1_000, "malformed"),
        ("messages", b"\x91" * 100_000, "malformed"),
    ],
)
async def test_a_malformed_request_is_refused_and_counted(store: Store, verb: str, body: bytes, reason: str) -> None:
    async with worker(store, "0" * 40) as here:
        before = refused(reason)
        assert await posted(here, verb, body, sealed(here, verb, body)) == 403
        assert refused(reason) == before + 1
        assert await posted(here, "ping", b"", sealed(here, "ping", b"")) == 403, "a number serves once"


OTHER_WIDTH = FilterShape(0, 512, 3, 3)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "malformed"),
        (b"\x00", "malformed"),
        (b"\x00\x09", "malformed"),
        (b"\x09\x01", "malformed"),
        (b"\x01", "malformed"),
        (b"\x01" + b"\x02" + messages.encode(Hello(OTHER_WIDTH))[1:], "version"),
        (b"\x01" + b"\0" * (messages.MAX_MESSAGE_BYTES + 1), "size"),
        (b"\x01" + messages.encode(FilterUpdate(OTHER_WIDTH, STRANGER, 1, 1, 0)), "shape"),
        (b"\x01\x01\x00" + b"\0" * 3 + b"\1" + (MAX_WIDTH + 1).to_bytes(4, "big") + b"\x03\x03", "malformed"),
    ],
)
async def test_a_malformed_message_of_a_neighbour_changes_nothing(store: Store, frame: bytes, reason: str) -> None:
    async with fleet(store, 2) as workers:
        await linked(workers)
        here, there = workers
        overlay = there.peers._overlay
        before = refused(reason)
        overlay._send_frames(here.me.id, frame)
        await until_so(lambda: refused(reason) == before + 1, "it is counted")
        digest = there.has(await make_channel(store), some_content("news"))
        await known(here, digest)


async def test_a_request_with_another_secret_or_to_a_closed_address_fails(store: Store) -> None:
    async with worker(store, "0" * 40) as here:
        signer = RequestSigner("another's", STRANGER)
        async with PeerClient(signer, time.time) as client:
            with pytest.raises(PeerProtocolError):
                await client.request(here.me, "ping", b"", timeout_s=5.0, max_bytes=0)
    async with PeerClient(signer, time.time) as client:
        with pytest.raises(PeerUnreachable):
            await client.request(here.me, "ping", b"", timeout_s=5.0, max_bytes=0)
