"""Exchange of contents: found near by, at the owner or in the store; wrong ones are refused."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from pydantic import SecretStr

from service.errors import StoreUnavailable
from service.location.content_cache import Content, digest_of, merge_latest, pack_entries
from service.model import Change, Delta, Entry
from service.net.peer_client import Peer, PeerClient
from service.store import Store
from tests.support.channels import make_channel
from tests.support.peer_workers import (
    NEAR,
    SETTINGS,
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
from tests.support.waiting import until, until_so
from workers.peers.neighbour_overlay import NeighbourOverlay
from workers.peers.peer_content_search import encode_query


@pytest_asyncio.fixture
async def three(store: Store) -> AsyncIterator[list[Worker]]:
    async with fleet(store, 3) as workers:
        yield workers


@pytest.fixture
def no_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all contents from the store."""

    async def nothing(cid: str) -> None:
        raise StoreUnavailable(f"Nobody was to ask for {cid}.")

    monkeypatch.setattr(store.channels, "content", nothing)


@pytest.mark.usefixtures("no_store")
async def test_a_content_at_a_neighbour_is_found_with_one_request(store: Store, three: list[Worker]) -> None:
    asker, has, _ = three
    channel = await make_channel(store)
    await linked(three)
    digest = has.has(channel, some_content("news"))
    await known(asker, digest)
    found = await asker.locate(channel, digest)
    assert (found.content, found.source, found.hops, found.worker) == (some_content("news"), "near", 1, has.me.id)
    assert (await asker.locate(channel, digest)).source == "cache"


@pytest.mark.usefixtures("no_store")
async def test_a_replaced_content_is_no_longer_in_the_filters(store: Store, three: list[Worker]) -> None:
    asker, has, _ = three
    channel = await make_channel(store)
    await linked(three)
    old, new = (has.has(channel, some_content(title)) for title in ("old", "new"))
    await known(asker, new)
    overlay = asker.peers._overlay
    assert overlay.first_hop(old.hex()) is None


@pytest.mark.usefixtures("no_store")
async def test_without_a_matching_filter_the_owner_is_requested(store: Store) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as owner:
        ring = introduce([asker, owner])
        channel = await owned_by(store, owner, ring)
        digest = owner.has(channel, some_content("news"))
        overlay = asker.peers._overlay
        overlay._ready.set()
        found = await asker.locate(channel, digest)
    assert (found.source, found.hops, found.worker) == ("owner", 1, owner.me.id)


@pytest.mark.usefixtures("no_store")
async def test_workers_that_are_near_each_other_request_the_owner_and_exchange_no_filters(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = list[str]()
    request = PeerClient.request

    async def recorded(self: PeerClient, peer: Peer, verb: str, body: bytes, **limits: float) -> bytes:
        requested.append(verb)
        return await request(self, peer, verb, body, **limits)  # type: ignore[arg-type]  # two numbers

    monkeypatch.setattr(PeerClient, "request", recorded)
    async with fleet(store, 3, NEAR) as near:
        asker, other, owner = near
        channel = await owned_by(store, owner, introduce(near, 2))
        digest = owner.has(channel, some_content("news"))
        assert other.has(channel, some_content("news")) == digest
        located = await asker.locate(channel, digest)
        assert (located.source, located.worker) == ("owner", owner.me.id)
        for each in near:
            await each.peers._overlay.maintain()
        assert [each.neighbours for each in near] == [set(), set(), set()]
    assert set(requested) == {"ping", "find"}
    assert requested.count("find") == 1


async def test_filters_are_exchanged_while_a_worker_is_far(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker(store, "8" + "0" * 39, NEAR) as one, worker(store, "c" + "0" * 39, NEAR) as other:
        async with worker(store, "0" * 40, NEAR) as distant:
            ping = NeighbourOverlay._ping

            async def slow(self: NeighbourOverlay, peer: Peer) -> None:
                await ping(self, peer)
                if distant.me.id in (self._worker_id, peer.id):
                    self._rtts_s[peer.id] = deque([20.0] * 8)

            monkeypatch.setattr(NeighbourOverlay, "_ping", slow)
            workers = [distant, one, other]
            introduce(workers)
            await linked(workers)
            digest = other.has(await make_channel(store), some_content("news"))
            await known(one, digest)
        introduce([one, other], 2)
        await until_so(lambda: not one.neighbours and not other.neighbours, "they are near each other again")


async def test_a_content_from_the_store_is_cached(store: Store, three: list[Worker]) -> None:
    channel = await make_channel(store)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    located = await three[0].locate(channel, state.digest)
    assert located.version == 1
    assert digest_of(located.content) == state.digest
    assert merge_latest((), [Entry("first", "First", channel.url + "/1")]) == await store.channels.latest(
        channel.id, 10
    )
    assert (await three[0].locate(channel, state.digest)).source == "cache"


async def test_a_content_without_copies_has_the_publisher_as_its_source(store: Store, three: list[Worker]) -> None:
    channel = await make_channel(store)
    located = await three[0].locate(channel, b"\1" * 16)
    assert (located.source, located.content.memory) == ("publisher", b"")


@pytest.mark.parametrize("broken", [b"", b"\x07", b"\x01", b"\x01\xff\xff\xff\xff", b"\x02abc", b"\x01\0\0\0\1ab"])
async def test_a_wrong_content_is_refused_and_the_next_source_used(
    store: Store, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as liar:
        ring = introduce([asker, liar])
        channel = await owned_by(store, liar, ring)
        (state,) = await store.channels.states([channel.id])
        assert state is not None
        monkeypatch.setitem(liar.peers._handlers, "find", lambda _sender, _body: broken)
        before = sum(refused(reason) for reason in ("digest", "malformed"))
        located = await asker.locate(channel, state.digest)
        assert digest_of(located.content) == state.digest
        assert located.source in {"store", "publisher"}
        assert sum(refused(reason) for reason in ("digest", "malformed")) == before + 1


async def test_a_wrong_content_of_a_neighbour_is_refused_and_the_owner_requested(
    store: Store, three: list[Worker]
) -> None:
    asker, liar, owner = three
    channel = await owned_by(store, owner, introduce(three, 2))
    await linked(three)
    right = some_content("right")
    digest = digest_of(right)
    liar.peers.contents.put("e" * 40, digest, some_content("wrong"))
    await known(asker, digest)
    owner.peers._cache.put(channel.id, digest, right, 0.0)
    owner.peers._cache._contents[channel.id].used_s = float("inf")
    before = refused("digest")
    located = await asker.locate(channel, digest)
    assert (located.content, located.worker) == (right, owner.me.id)
    assert refused("digest") == before + 1


async def test_a_worker_that_has_left_is_skipped(store: Store) -> None:
    async with worker(store, "0" * 40) as asker:
        async with worker(store, "8" + "0" * 39) as gone:
            channel = await owned_by(store, gone, introduce([asker, gone]))
        assert (await asker.locate(channel, b"\3" * 16)).source == "publisher"


async def test_concurrent_lookups_share_one_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as owner:
        channel = await owned_by(store, owner, introduce([asker, owner]))
        digest = owner.has(channel, some_content("news"))
        answer, asked = owner.peers._handlers["find"], list[bytes]()

        def counting(sender: str, body: bytes) -> bytes:
            asked.append(body)
            return answer(sender, body)

        monkeypatch.setitem(owner.peers._handlers, "find", counting)
        found = await asyncio.gather(*(asker.locate(channel, digest) for _ in range(5)))
    assert {each.content for each in found} == {some_content("news")}
    assert len(asked) == 1


async def test_the_node_that_detected_a_version_has_its_content(store: Store) -> None:
    async with worker(store, "0" * 40) as finder:
        channel = await make_channel(store)
        before = Content(b"before", pack_entries([Entry("a")]))
        delta = Delta(channel.id, 1, 2, 0.0, (Change("addition", Entry("b")),))
        after = Content(b"after", pack_entries([Entry("b"), Entry("a")]))
        finder.peers.contents.on_versioned(channel, delta, b"after", finder.has(channel, before), digest_of(after))
        assert (await finder.locate(channel, digest_of(after))).source == "cache"
        finder.peers.contents.on_versioned(channel, delta, b"not what the owner says", digest_of(after), b"\4" * 16)
        assert finder.peers.contents._cache._contents[channel.id].content == after


async def test_a_restarted_worker_receives_filters_again(store: Store) -> None:
    async with worker(store, "0" * 40) as asker:
        channel = await make_channel(store)
        async with worker(store, "8" + "0" * 39) as first:
            introduce([asker, first])
            await linked([asker, first])
            digest = first.has(channel, some_content("news"))
            await known(asker, digest)
        async with worker(store, "8" + "0" * 39) as second:
            introduce([asker, second], 2)
            assert asker.neighbours == set()
            await linked([asker, second])
            overlay = asker.peers._overlay
            assert overlay.first_hop(digest.hex()) is None
            second.has(channel, some_content("news"))
            await known(asker, digest)


async def test_a_lost_stream_restarts_at_both_ends(store: Store) -> None:
    async with fleet(store, 2) as workers:
        await linked(workers)
        channel = await make_channel(store)
        digest = workers[1].has(channel, some_content("news"))
        await known(workers[0], digest)
        forgetful = workers[0].peers._overlay
        forgetful._streams.clear()
        forgetful._forget(workers[1].me.id)
        await linked(workers)
        await known(workers[0], digest)


async def test_a_single_worker_sends_nothing_and_without_a_secret_responds_to_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> bytes:
        raise AssertionError("a request was sent")

    monkeypatch.setattr(PeerClient, "request", never)
    async with worker(store, "0" * 40) as alone:
        introduce([alone])
        channel = await make_channel(store)
        digest = alone.has(channel, some_content("news"))
        overlay = alone.peers._overlay
        await overlay.maintain()
        assert (await alone.locate(channel, digest)).source == "cache"
        assert (await alone.locate(channel, b"\5" * 16)).source == "publisher"
    async with worker(store, "0" * 40, SETTINGS.model_copy(update={"cluster_secret": SecretStr("")})) as closed:
        assert await posted(closed, "ping", b"", "") == 404


async def test_a_query_visits_no_worker_twice(store: Store, three: list[Worker]) -> None:
    first, second, third = three
    await linked(three)
    digest = third.has(await make_channel(store), some_content("news"))
    await known(second, digest)
    overlay = first.peers._overlay

    async def step() -> tuple[str, int] | None:
        found = overlay.first_hop(digest.hex())
        return None if found is None else (found[0], found[1].max_row)

    await until(step, "the filters know it")
    query = overlay._node.start_query(digest.hex())
    visited = msgspec.structs.replace(query, visited=(first.me.id, third.me.id, second.me.id))
    answer = second.peers._handlers["find"](first.me.id, encode_query(digest, visited))
    assert answer == b"\0"
