"""Keyspaces on Redis behave as the in-memory ones, and refuse foreign keyspaces and keys."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from service.clash import move_steps
from service.clash.group_search import Probe
from service.clash.key_groups import KeyGroup, Keyspace, Keyspaces
from service.clash.prefix_query import Page, ReadDonor, ReadLeaf, Record
from service.clash.server_table import Move, MoveKind
from service.clash.table_transitions import Accepted, AcceptObjectReply
from service.errors import BadKey, CoronetError, MoveRefused, UnknownKeyspace
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.client import redis_client as links
from service.store.client.redis_client import RedisClient
from service.store.subscriptions.keyspace_store import KeyspaceStore, unpack_page
from tests.support.keyspace_histories import BITS, Moves, run_history
from tests.support.memory_keyspaces import MemoryKeyspaces

T = TypeVar("T")


class Redis:
    """A synchronous client, which the steps of a state machine can call."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.link = RedisClient(Settings(redis_url=url))

    def __call__(self, asked: Awaitable[T]) -> T:
        async def wait() -> T:
            return await asked

        return self.runner.run(wait())

    def close(self) -> None:
        self(self.link.close())
        self.runner.close()


class BothKeyspaces(MemoryKeyspaces):
    """Keyspaces in memory and on Redis, side by side."""

    def __init__(self, count: int, redis: Redis) -> None:
        super().__init__(count, BITS)
        self._redis = redis
        redis(redis.link.call("FLUSHALL"))
        self._other = KeyspaceStore(redis.link, Keyspaces(count), BITS)

    def carry_out(self, step: move_steps.Step) -> move_steps.Outcome:
        try:
            outcome = super().carry_out(step)
        except CoronetError as error:
            with pytest.raises(type(error)):
                self._redis(self._other.carry_out(step))
            self._check_same()
            raise
        assert self._redis(self._other.carry_out(step)) == outcome
        self._check_same()
        return outcome

    def write(self, probe: Probe, record: Record) -> AcceptObjectReply:
        found = super().write(probe, record)
        assert self._redis(self._other.write(probe, record)) == found
        self._check_same()
        return found

    def ask(self, probe: Probe) -> AcceptObjectReply:
        found = super().ask(probe)
        assert self._redis(self._other.count(probe, bytes(8)))[0] == found
        return found

    def read_leaf(self, question: ReadLeaf) -> tuple[AcceptObjectReply, Page]:
        found = super().read_leaf(question)
        assert self._redis(self._other.read_leaf(question)) == found
        return found

    def read_donor(self, question: ReadDonor) -> Page:
        found = super().read_donor(question)
        assert self._redis(self._other.read_donor(question)) == found
        return found

    def _check_same(self) -> None:
        assert self._redis(self._other.tables(range(self.map.count))) == self.tables
        for keyspace, held in enumerate(self.records):
            expected = self._sorted(keyspace)
            _, pages, records, channels, ends = keys.keyspace(keyspace)
            asked = [("ZRANGE", pages, 0, -1), ("HGETALL", records), ("HGETALL", channels), ("ZRANGE", ends, 0, -1)]
            order, found, counts, ended = self._redis(self._redis.link.call_many(asked))
            assert [record for start in order for record in unpack_page(found[start])] == expected
            assert len(order) == len(found)
            assert sum(map(int, counts.values())) == sum(record.present for record in expected)
            assert len(ended) == sum(not record.present for record in expected)
            groups = [KeyGroup(0, 0, BITS), KeyGroup(0, 1, BITS), KeyGroup(6, 3, BITS)]
            sizes = [sum(key in group for key, _ in held) for group in groups]
            assert self._redis(self._other.sizes(keyspace, groups)) == sizes


class BothMoves(Moves):
    """Moves that run in memory and on Redis."""

    redis: Redis

    def create_store(self, count: int) -> MemoryKeyspaces:
        return BothKeyspaces(count, self.redis)


@pytest.fixture
def redis(clean_redis: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A Redis with pages and move steps so small that few records fill many pages."""
    whole = links._script
    assert "MOST = 28, 24, 128\n" in whole("keyspace_write")
    monkeypatch.setattr(
        links, "_script", lambda name: whole(name).replace("MOST = 28, 24, 128\n", "MOST = 28, 24, 3\n")
    )
    monkeypatch.setattr("service.store.subscriptions.keyspace_store.RECORDS_PER_STEP", 2)
    opened = Redis(clean_redis)
    try:
        yield opened
    finally:
        opened.close()


BLOCKS, HISTORIES_PER_BLOCK = 20, 10
blocks = pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.storms) for block in range(2, BLOCKS))]
)


@blocks
def test_random_histories_match_the_model_in_memory(redis: Redis, block: int) -> None:
    for seed in range(block * HISTORIES_PER_BLOCK, (block + 1) * HISTORIES_PER_BLOCK):
        moves = BothMoves()
        moves.redis = redis
        run_history(moves, Random(seed))  # noqa: S311 - repeatable, not secret


KEY = 0xABCDEF01
RECORD = Record(KEY, "channel.and.a.person", 1)
EVERYTHING = KeyGroup(0, 0, 32)


def _root(keyspaces: KeyspaceStore) -> Keyspace:
    return keyspaces.map.keyspace_of(EVERYTHING)


async def _contents(store: Store) -> list[bytes]:
    found: list[bytes] = await store.redis.call_many([("DUMP", name) for name in keys.keyspace(_root(store.keyspaces))])
    return found


def _wrong(root: Keyspace) -> list[tuple[type[CoronetError], str, Callable[[KeyspaceStore], Awaitable[object]]]]:
    alien = Move(1, MoveKind.SPLIT, 300, root, EVERYTHING)
    return [
        (BadKey, "no identifier key of 32 bits", lambda store: store.write(Probe(root, KEY << 8, 0), RECORD)),
        (
            BadKey,
            "no identifier key of 32 bits",
            lambda store: store.write(Probe(root, KEY, 0), Record(1 << 32, "", 1)),
        ),
        (BadKey, "is no id of a subscription", lambda store: store.write(Probe(root, KEY, 0), Record(KEY, "ada", 1))),
        (
            BadKey,
            "is no id of a subscription",
            lambda store: store.write(Probe(root, KEY, 0), Record(KEY, "☃" * 20, 1)),
        ),
        (BadKey, "seqs 31", lambda store: store.write(Probe(root, KEY, 0), Record(KEY, RECORD.id, 1 << 31))),
        (UnknownKeyspace, "no keyspace 256", lambda store: store.write(Probe(256, KEY, 0), RECORD)),
        (UnknownKeyspace, "no keyspace -1", lambda store: store.tables([0, -1])),
        (UnknownKeyspace, "no keyspace 300", lambda store: store.carry_out(move_steps.Fetch(alien))),
        (MoveRefused, "cannot be split", lambda store: store.carry_out(move_steps.SplitGroup(root, EVERYTHING.left))),
        (MoveRefused, "cannot be merged", lambda store: store.carry_out(move_steps.MergeGroup(root, EVERYTHING))),
    ]


async def test_invalid_input_is_refused_and_changes_nothing(store: Store) -> None:
    root = _root(store.keyspaces)
    assert isinstance(await store.keyspaces.write(Probe(root, KEY, 0), RECORD), Accepted)
    before = await _contents(store)
    for error, said, asked in _wrong(root):
        with pytest.raises(error, match=said):
            await asked(store.keyspaces)
        assert await _contents(store) == before


@pytest.mark.parametrize(
    ("field", "text", "error", "said"),
    [
        ("bits", "24", BadKey, "has keys of 24 bits, not 32"),
        ("0*", "sleeping", BadKey, "describes no group"),
        ("seen:999", "1", UnknownKeyspace, "no keyspace 999"),
    ],
)
async def test_a_foreign_table_is_refused_and_unchanged(
    store: Store, field: str, text: str, error: type[CoronetError], said: str
) -> None:
    keyspaces, root = store.keyspaces, _root(store.keyspaces)
    await keyspaces.carry_out(move_steps.SplitGroup(root, EVERYTHING))
    (table,) = await keyspaces.tables([root])
    move = table.move
    assert move is not None
    await store.redis.call("HSET", keys.keyspace(root)[0], field, text)
    before = await _contents(store)
    prefix = KeyGroup.containing(KEY, 8, 32)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: keyspaces.write(Probe(root, KEY, 0), RECORD),
        lambda: keyspaces.read_leaf(ReadLeaf(Probe(root, KEY, 0), prefix, None, 10)),
        lambda: keyspaces.read_donor(ReadDonor(move, prefix, None, 10)),
        lambda: keyspaces.carry_out(move_steps.Fetch(move, (RECORD,))),
        lambda: keyspaces.tables([root]),
    ]
    for ask in asked:
        with pytest.raises(error, match=said):
            await ask()
        assert await _contents(store) == before


async def test_recorded_deliveries_are_read_once(store: Store) -> None:
    keyspaces, leaf = store.keyspaces, KeyGroup.from_label("0110*", 32)
    assert await keyspaces.take_deliveries(7) == {}
    await keyspaces.record_deliveries(7, leaf, 40)
    await keyspaces.record_deliveries(7, leaf, 2)
    await keyspaces.record_deliveries(8, EVERYTHING, 1)
    assert await keyspaces.take_deliveries(7) == {leaf: 42}
    assert await keyspaces.take_deliveries(7) == {}
