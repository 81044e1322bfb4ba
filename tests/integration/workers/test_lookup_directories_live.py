"""Lookup directories on a real Redis: from matrices, through messages, to lookups at any worker."""

from collections.abc import Collection, Sequence
from contextlib import suppress

import pytest

from service.console.pages.directory import measure
from service.discovery.candidates import Candidates, Clause, require_all
from service.discovery.query_parser import parse_query
from service.errors import NotFound, NoWorker
from service.model import ChannelId
from service.search import Searcher
from service.store import Store
from service.store.directory.matrices import ContentName
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import make_channel
from tests.support.waiting import until
from workers.lookup_directories import DISCOVER

NAMES = [
    ContentName(f"{number:040x}", dict.fromkeys([DISCOVER, "lang=de"][: 1 + number % 2], 1)) for number in range(60)
]


async def test_any_worker_finds_channels_in_memory_after_maintenance(store: Store, start_worker: StartWorker) -> None:
    await store.channel_directory.register(NAMES, 600.0)
    await start_worker()
    await start_worker()

    async def looked_up() -> tuple[ChannelId, ...]:
        with suppress(NoWorker):
            return await store.worker_requests.lookup([DISCOVER], 20, 5.0)
        return ()

    for _ in range(6):
        found = await until(looked_up, "a worker has a share of the directory")
        assert len(set(found)) == 20
        assert set(found) <= {name.id for name in NAMES}
    german = await store.worker_requests.lookup([DISCOVER, "lang=de"], 10, 5.0)
    assert len(german) == 10
    assert all(int(name, 16) % 2 for name in german)
    assert await store.worker_requests.lookup(["lang=xx"], 10, 5.0) == ()
    (kept,) = [each for each in await store.worker_requests.directories() if each.pair == DISCOVER]
    assert (kept.measured.entries, kept.measured.servers) == (60, 2)
    good = await measure(store, DISCOVER)
    assert (good.entries, good.servers, good.answered, good.coverage, good.stored) == (60, 2, 2, 60, 120)
    assert good.fault_tolerance == 1
    assert good.unfairness == pytest.approx(0, abs=1e-9)
    with pytest.raises(NotFound):
        await measure(store, "tag=nobody-asks")


async def test_a_search_asks_a_worker_first_and_then_the_matrices(
    store: Store, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await make_channel(store, f"https://{number}.example/feed", listed=True)
    await start_worker()
    search, find, asked = Searcher(store, 3), store.channel_directory.find, list[Sequence[Clause]]()

    async def counted(clauses: Sequence[Clause], excluded: Collection[str], most: int) -> Candidates:
        asked.append(clauses)
        return await find(clauses, excluded, most)

    monkeypatch.setattr(store.channel_directory, "find", counted)
    around, one = (parse_query(text) for text in ("status=ok limit 5", "host=7.example limit 5"))

    async def from_memory() -> bool:
        asked.clear()
        return len(await search.find(around)) == 5 and not asked

    assert await until(from_memory, "a worker has a share of the directory")

    async def from_the_matrices() -> bool:
        asked.clear()
        return len(await search.find(one)) == 1

    assert await until(from_the_matrices, "the worker has named them all")
    assert asked == [require_all(one.pairs)]
