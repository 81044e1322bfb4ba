"""Metrics of content lookups."""

import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from service.feeds.canonical_urls import channel_id
from service.location.content_cache import digest_of
from service.model import Channel, Validators
from service.net.peer_client import Peer
from service.store import Store
from service.store.channels.channel_records import Snapshot
from tests.support.channels import make_channel
from tests.support.peer_workers import Worker, introduce, known, owned_by, some_content, worker
from tests.support.waiting import until_so
from workers.peers.neighbour_overlay import NeighbourOverlay


async def scraped(of: Worker) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(of.info.metrics_url) as answer:
        lines = (await answer.text()).splitlines()
    values = (line.rsplit(" ", 1) for line in lines if line.startswith("coronet_"))
    return {name: float(value) for name, value in values}


def where(source: str) -> str:
    return f'coronet_contents_total{{source="{source}"}}'


def failures(why: str) -> str:
    return f'coronet_location_failures_total{{why="{why}"}}'


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return by how much the metrics of lookups have grown."""
    told = ("coronet_contents_total", "coronet_location_failures_total")
    return {name: value - before.get(name, 0) for name, value in after.items() if name.startswith(told)}


@contextlib.asynccontextmanager
async def in_a_row(store: Store, size: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Worker]]:
    """Yield a chain of workers, each linked to the one before and the one after it only."""
    ping = NeighbourOverlay._ping
    async with contextlib.AsyncExitStack() as stack:
        row = [await stack.enter_async_context(worker(store, f"{number * 4:x}" + "0" * 39)) for number in range(size)]
        place = {each.me.id: number for number, each in enumerate(row)}

        async def next_to_it(self: NeighbourOverlay, peer: Peer) -> None:
            if abs(place[self._worker_id] - place[peer.id]) == 1:
                await ping(self, peer)

        monkeypatch.setattr(NeighbourOverlay, "_ping", next_to_it)
        introduce(row)
        await until_so(
            lambda: all(len(each.neighbours) == (1 if place[each.me.id] in {0, size - 1} else 2) for each in row),
            "they are linked in a row",
        )
        yield row


async def test_lookups_are_counted_by_source(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_a_row(store, 4, monkeypatch) as row:
        asker, *others = row
        before = await scraped(asker)
        for hops, has in enumerate(others, start=1):
            channel = await make_channel(store, f"https://{hops}.example/feed")
            digest = has.has(channel, some_content(str(hops)))
            await known(asker, digest)
            located = await asker.locate(channel, digest)
            assert (located.source, located.hops) == ("near", hops)
            assert (await asker.locate(channel, digest)).source == "cache"
        after = await scraped(asker)
        wanted = {where("hop1"): 1, where("hop2"): 1, where("hop3"): 1, where("cache"): 3}
        assert {name: n for name, n in grown(before, after).items() if n} == wanted
        size_bytes = some_content("1").size_bytes
        for hops in range(1, 4):
            name = f'coronet_content_bytes_total{{source="hop{hops}"}}'
            assert after[name] - before.get(name, 0) == size_bytes


async def test_fallbacks_are_counted_with_the_reason(store: Store) -> None:
    async with worker(store, "0" * 40) as asker, worker(store, "8" + "0" * 39) as owner:
        ring = introduce([asker, owner])
        await until_so(lambda: owner.me.id in asker.neighbours, "they are neighbours")
        before = await scraped(asker)

        url = "https://kept.example/feed"
        kept = Channel(channel_id(url), url, created_s=1.0)
        await store.channels.create(kept, Snapshot(Validators(), b"what is remembered", "Kept", url), (), 1.0)
        (state,) = await store.channels.states([kept.id])
        assert state is not None
        assert (await asker.locate(state.channel, state.digest)).source == "store"
        bare = await make_channel(store, "https://bare.example/feed")
        assert (await asker.locate(bare, b"\1" * 16)).source == "publisher"

        owned = await owned_by(store, owner, ring)
        content = some_content("not told yet")
        owner.peers._cache.put(owned.id, digest_of(content), content, float("inf"))
        assert (await asker.locate(owned, digest_of(content))).source == "owner"

        gone = await make_channel(store, "https://gone.example/feed")
        digest = owner.has(gone, some_content("gone"))
        await known(asker, digest)
        owner.peers._cache.remove(gone.id)
        assert (await asker.locate(gone, digest)).source == "publisher"

        wanted = {where("store"): 1, where("publisher"): 2, where("owner"): 1}
        wanted |= {failures("none"): 3, failures("false-positive"): 1}
        assert {name: n for name, n in grown(before, await scraped(asker)).items() if n} == wanted
