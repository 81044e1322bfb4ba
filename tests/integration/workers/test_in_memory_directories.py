"""Lookup directories on a real Redis: from matrices, through messages, to lookups at any worker."""

import asyncio
import time
from collections.abc import Collection, Sequence
from datetime import date

import pytest

from service.console.resources.fleet.directory import measure
from service.discovery.discover_listings import MAX_CANDIDATES, WORKING
from service.discovery.matrix_search import MatrixReaders
from service.discovery.queries.query_parser import parse_query
from service.discovery.search_candidates import Candidates, Clause, require_all
from service.errors import NotFound
from service.model import ChannelId, NodeId
from service.search.searcher import Searcher
from service.store import Store
from service.store.channels.channel_records import pack_name
from service.store.client import keys
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.directory import lookup_directory_client
from service.store.directory.matrix_directory import ContentName
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import make_channel
from tests.support.waiting import until

NAMES = [
    ContentName(f"{number:040x}", dict.fromkeys([WORKING, "lang=de"][: 1 + number % 2], 1)) for number in range(60)
]


@pytest.fixture(autouse=True)
def fresh_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients read the announcements at every lookup."""
    monkeypatch.setattr(lookup_directory_client, "REFRESH_S", 0.0)


async def looked_up(store: Store, *pairs: str, target: int = MAX_CANDIDATES) -> tuple[ChannelId, ...]:
    found = await store.directory_lookups.lookup(pairs, target)
    return found.names if found else ()


async def test_any_worker_finds_channels_in_memory_after_maintenance(store: Store, start_worker: StartWorker) -> None:
    await store.channel_directory.register(NAMES, time.time() + 600.0)
    for name in NAMES:
        await store.redis.call("HSET", keys.channel(name.id), "name", pack_name(1, name.pairs.keys()))
    await start_worker()
    await start_worker()
    for _ in range(6):
        found = await until(lambda: looked_up(store, WORKING), "a worker has a share of the directory")
        assert set(found) == {name.id for name in NAMES}
    german = await until(lambda: looked_up(store, WORKING, "lang=de"), "a worker has read the names' pairs")
    assert set(german) == {name.id for name in NAMES if "lang=de" in name.pairs}
    assert await looked_up(store, "lang=xx") == ()
    (kept,) = [each for each in await store.worker_requests.directories() if each.pair == WORKING]
    assert (kept.measured.entries, kept.measured.servers) == (60, 2)
    good = await measure(store, WORKING)
    assert (good.entries, good.servers, good.answered, good.coverage, good.stored) == (60, 2, 2, 60, 120)
    assert good.fault_tolerance == 1
    assert good.unfairness == pytest.approx(0, abs=1e-9)
    with pytest.raises(NotFound):
        await measure(store, "tag=nobody-asks")


async def test_a_search_queries_the_matrices_only_after_a_worker(
    store: Store, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await make_channel(store, f"https://{number}.example/feed", listed=True)
    await start_worker()
    search, find, asked = Searcher(store, 3), store.channel_directory.find, list[Sequence[Clause]]()

    async def counted(
        clauses: Sequence[Clause], excluded: Collection[str], most: int, read: MatrixReaders
    ) -> Candidates:
        asked.append(clauses)
        return await find(clauses, excluded, most, read)

    monkeypatch.setattr(store.channel_directory, "find", counted)
    around, one = (parse_query(text, date(2026, 11, 1)) for text in ("status=ok limit 5", "host=7.example limit 5"))

    async def from_memory() -> bool:
        asked.clear()
        return len((await search.find(around)).hits) == 5 and not asked

    assert await until(from_memory, "a worker has a share of the directory")
    assert len((await search.discover(language="en", limit=5)).hits) == 5
    assert not asked

    async def from_the_matrices() -> bool:
        asked.clear()
        return len((await search.find(one)).hits) == 1

    assert await until(from_the_matrices, "the worker has named them all")
    assert asked == [require_all(one.attributes)]


async def test_a_worker_that_does_not_answer_delays_few_lookups(
    store: Store, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.channel_directory.register(NAMES, time.time() + 600.0)
    await start_worker()
    await start_worker()
    for _ in range(3):
        await until(lambda: looked_up(store, WORKING, target=20), "a worker has a share of the directory")
    dead = (await store.ring.nodes())[0].id
    send, lost = store.node_inboxes.send, list[NodeId]()

    async def send_to_the_living(messages: list[tuple[NodeId, InboxMessage]]) -> None:
        lost.extend(node for node, message in messages if node == dead and message.kind == "ask")
        await send([(node, message) for node, message in messages if node != dead])

    monkeypatch.setattr(store.node_inboxes, "send", send_to_the_living)
    for name, value_s in {"TIMEOUT_S": 5.0, "MIN_HEDGE_S": 0.3, "MAX_HEDGE_S": 0.3}.items():
        monkeypatch.setattr(lookup_directory_client, name, value_s)

    async def all_found() -> bool:
        assert len(await looked_up(store, WORKING, target=20)) == 20
        return bool(lost)

    # A slow answer may have made it a suspect, which is asked last for a while.
    await until(all_found, "the dead worker is asked")
    for _ in range(20):
        await all_found()
    assert len(lost) <= 5, "without suspects about 10"


async def test_a_lookup_without_a_response_times_out(store: Store, start_worker: StartWorker) -> None:
    await store.channel_directory.register(NAMES, time.time() + 600.0)
    worker = await start_worker()
    await until(lambda: looked_up(store, WORKING, target=20), "a worker has a share of the directory")
    worker.cancel()
    await asyncio.wait([worker])
    began_s = time.monotonic()
    assert await looked_up(store, WORKING, target=20) == ()
    assert time.monotonic() - began_s < 5
