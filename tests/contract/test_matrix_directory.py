"""The directory on Redis: a registered name is found by every subset of its pairs while matrices grow and shrink."""

import itertools
import random
import time

import msgspec

from service.discovery import matrix_cell
from service.discovery.matrix import MatrixLimits, home_partition
from service.discovery.postings import name_key, pack, unpack
from service.discovery.search_candidates import require_all
from service.store import Store
from service.store.client import keys
from service.store.directory.matrix_balancer import MatrixBalancer
from service.store.directory.matrix_directory import ContentName, Directory
from tests.support.waiting import until

EXPIRES_S = time.time() + 86_400.0
SMALL = MatrixLimits(names=20, registrations_s=1e9, queries_s=1e9, partitions=8, replicas=4)


def named(count: int, *pairs: str) -> list[ContentName]:
    return [
        ContentName(f"name{n:03}", dict.fromkeys({"lang=en", f"tag=t{n % 7}", f"word=w{n}", *pairs}, 1))
        for n in range(count)
    ]


async def found(directory: Directory, *pairs: str) -> set[str]:
    return set((await directory.find(require_all(pairs), (), 1_000)).names)


async def settled(store: Store, directory: Directory) -> None:
    """Keep the directory's matrices until they do not change any more."""
    balancer = MatrixBalancer(directory, store.redis_node_loads)
    while await balancer.maintain(lambda _: True) or balancer._superfluous:
        pass


async def test_a_name_is_found_exactly_by_subsets_of_its_pairs(store: Store) -> None:
    await store.channel_directory.register(named(30), EXPIRES_S)
    assert await found(store.channel_directory, "tag=t3") == {"name003", "name010", "name017", "name024"}
    assert await found(store.channel_directory, "tag=t3", "word=w10", "lang=en") == {"name010"}
    assert await found(store.channel_directory, "tag=t3", "word=w11") == set()
    assert await found(store.channel_directory, "tag=nobody") == set()
    assert await found(store.entry_directory, "tag=t3") == set(), "entries have a directory of their own"


async def test_a_changed_name_is_found_only_by_its_present_pairs(store: Store) -> None:
    await store.channel_directory.register([ContentName("a", dict.fromkeys({"lang=en", "tag=old"}, 1))], EXPIRES_S)
    await store.channel_directory.register([ContentName("a", dict.fromkeys({"lang=en", "tag=new"}, 1))], EXPIRES_S)
    await store.channel_directory.withdraw("a", ["tag=old"], EXPIRES_S)
    assert await found(store.channel_directory, "tag=old") == set()
    assert await found(store.channel_directory, "tag=new") == await found(store.channel_directory, "lang=en") == {"a"}


async def test_matrices_grow_and_shrink_without_losing_names(store: Store) -> None:
    one, other = (Directory(store.channel_directory._redis, store.matrix_cells, "channel", SMALL) for _ in range(2))
    names = named(300)
    drawn = random.Random(3)  # noqa: S311 - the same names each time
    for first in range(0, 300, 30):
        await one.register(names[first : first + 30], EXPIRES_S)
        await settled(store, one)
        assert await found(one, "lang=en") == await found(other, "lang=en") == {name.id for name in names[: first + 30]}
    assert (await one.matrix_sizes())["lang=en"].partitions >= 8
    gone, left = names[5:], names[:5]
    drawn.shuffle(gone)
    for first in range(0, len(gone), 29):
        for name in gone[first : first + 29]:
            await other.withdraw(name.id, name.pairs, EXPIRES_S)
        await settled(store, other)
        assert await found(one, "lang=en") == {name.id for name in [*left, *gone[first + 29 :]]}
    for _ in range(20):
        await other.register(left, EXPIRES_S)
        await settled(store, other)
    assert await found(one, "lang=en") == {name.id for name in left}


async def test_a_partition_of_expired_names_is_removed(store: Store) -> None:
    directory = Directory(store.channel_directory._redis, store.matrix_cells, "channel", SMALL)
    for first in range(0, 300, 30):
        await directory.register(named(300)[first : first + 30], EXPIRES_S)
        await settled(store, directory)
    cells = dict(await directory.cells_of("lang=en"))
    last = len(cells) - 1
    for place in cells:
        (held,) = await store.matrix_cells.carry_out([matrix_cell.ReadPostings(place)])
        for page in await store.redis.call("HKEYS", keys.cell(place)[1]):
            if b"." in page:
                over = [msgspec.structs.replace(each, expires_s=1) for each in unpack(held.postings or b"")]
                await store.redis.call("HSET", keys.cell(place)[1], page, pack(over))
    numbered = (f"name{n}" for n in itertools.count())
    alone = next(name for name in numbered if home_partition(name_key(name), last + 1) == last)

    async def shrunk() -> bool:
        """Return whether the last partition is removed; its merge target still counts expired names."""
        await directory.register([ContentName(alone, dict.fromkeys({"lang=en"}, 1))], EXPIRES_S)
        await settled(store, directory)
        return (await directory.matrix_sizes())["lang=en"].partitions == last

    await until(shrunk, "the last partition goes")
    assert await found(directory, "lang=en") == {alone}


async def test_all_names_of_a_pair_are_listed_with_their_weights(store: Store) -> None:
    directory = Directory(store.channel_directory._redis, store.matrix_cells, "channel", SMALL)
    names = [ContentName(name.id, {"lang=en": 1 + number}) for number, name in enumerate(named(100))]
    await directory.register(names, EXPIRES_S)
    await settled(store, directory)
    await directory.withdraw("name007", ["lang=en"], EXPIRES_S)
    keys, weights = (found.tolist() for found in await directory.weights_of("lang=en"))
    resolved = await directory.resolve(keys)
    assert {resolved[key]: weight for key, weight in zip(keys, weights, strict=True)} == {
        name.id: name.pairs["lang=en"] for name in names if name.id != "name007"
    }


async def test_a_query_result_describes_the_search(store: Store) -> None:
    await store.channel_directory.register(named(30), EXPIRES_S)
    told = await store.channel_directory.find(require_all(["tag=t3", "lang=en"]), (), 2)
    assert told.frequencies == {"tag=t3": 4, "lang=en": 30}
    assert [(each.pair, each.size.partitions, each.cells) for each in told.queried] == [
        ("tag=t3", 1, 1),
        ("lang=en", 1, 1),
    ]
    assert (len(told.found), told.total, told.complete) == (2, 4, True)
    assert told.elapsed_s > 0
    (cell,) = await store.channel_directory.cells_of("lang=en")
    assert cell[1].load.names == 30


async def test_a_repeated_registration_changes_nothing(store: Store) -> None:
    for _ in range(2):
        await store.channel_directory.register(named(10), EXPIRES_S)
    assert await found(store.channel_directory, "lang=en") == {name.id for name in named(10)}


async def test_each_name_of_a_batch_is_found_by_its_own_pairs(store: Store) -> None:
    names = named(300)
    await store.channel_directory.register(names, EXPIRES_S)
    await store.channel_directory.register(names[:200], EXPIRES_S + 600)
    assert await found(store.channel_directory, "lang=en") == {name.id for name in names}
    for name in names[::23]:
        assert await found(store.channel_directory, *name.pairs) == {name.id}


async def test_each_name_of_a_batch_is_stored_in_its_own_partition(store: Store) -> None:
    one, other = (Directory(store.channel_directory._redis, store.matrix_cells, "channel", SMALL) for _ in range(2))
    for first in range(0, 300, 30):
        await one.register(named(300)[first : first + 30], EXPIRES_S)
        await settled(store, one)
    await found(other, "lang=en")  # so it knows the size
    await other.register(named(600)[300:], EXPIRES_S)
    assert await found(one, "lang=en") == {name.id for name in named(600)}
    loads = [answer.load.names for _, answer in await one.cells_of("lang=en")]
    assert len(loads) == 8
    assert sum(loads) == 600, "each lies in one partition"
    assert min(loads) >= 300 / len(loads) / 2, loads
