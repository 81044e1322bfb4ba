"""Lookup directories: a fleet of nodes and their messages, over matrices in a dictionary."""

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import cycle

import pytest

from service.discovery.cell import NameRecord
from service.discovery.partial.node_share import PlacementTerm, ShareUpdate, decode_letter, encode_letter
from service.discovery.partial.strategy_choice import UPDATES_PER_PLACEMENT
from service.errors import StoreUnavailable
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from workers.lookup_directories import DISCOVER, MIN_TARGET, LookupDirectories, NameSource

NODES = [f"{number:x}5" * 20 for number in range(6)]
TAG = "tag=python"


class MemoryMatrices(NameSource):
    """Names with their pairs; unavailable while ``down``."""

    def __init__(self) -> None:
        self.held: dict[str, frozenset[str]] = {}
        self.down = False
        self.reads = 0

    def key(self, pair: str) -> str:
        return pair.upper()

    async def names(self, pair: str, max_count: int, /) -> Sequence[NameRecord]:
        self.reads += 1
        if self.down:
            raise StoreUnavailable("Redis is away.")
        records = [NameRecord(name, 1, pairs, 0) for name, pairs in self.held.items() if self.key(pair) in pairs]
        return records[:max_count]

    async def content_mark(self, pair: str) -> Hashable:
        return frozenset((name, pairs) for name, pairs in self.held.items() if self.key(pair) in pairs)


class Fleet:
    """Nodes of one ring; messages arrive in order, except at ``lost`` nodes."""

    def __init__(self, count: int) -> None:
        self.matrices = MemoryMatrices()
        self.messages: deque[tuple[NodeId, bytes]] = deque()
        self.lost: set[NodeId] = set()
        self.version = 0
        draws = cycle(number / 97 for number in range(97))

        async def send(messages: Sequence[tuple[NodeId, bytes]]) -> None:
            self.messages.extend(messages)

        self.nodes = {node: LookupDirectories(node, self.matrices, send, lambda: next(draws)) for node in NODES[:count]}
        self.rejoin(NODES[:count])

    def rejoin(self, nodes: Sequence[NodeId]) -> None:
        self.version += 1
        view = RingView(self.version, tuple(NodeInfo(node, 1, node, 0.0) for node in nodes))
        self.nodes = {node: directories for node, directories in self.nodes.items() if node in view}
        for directories in self.nodes.values():
            directories.on_ring_changed(view)

    async def maintain(self, times: int = 1) -> None:
        for _ in range(times):
            for directories in self.nodes.values():
                await directories.maintain()
            while self.messages:
                to, payload = self.messages.popleft()
                if to in self.nodes and to not in self.lost:
                    await self.nodes[to].on_message(payload)

    def found(self, pairs: Sequence[str], limit: int) -> list[list[str]]:
        return [directories.find(pairs, limit) for directories in self.nodes.values()]


def fleet_with(count: int, names: int) -> Fleet:
    fleet = Fleet(count)
    fleet.matrices.held = {
        f"name {number}": frozenset({"STATUS=OK", *(["TAG=PYTHON"] if number % 2 else [])}) for number in range(names)
    }
    return fleet


@pytest.mark.parametrize("count", [1, 2, 6])
@pytest.mark.parametrize("names", [1, 50, 2000])
async def test_every_node_answers_a_search_without_a_query(count: int, names: int) -> None:
    fleet = fleet_with(count, names)
    await fleet.maintain()
    for found in fleet.found([DISCOVER], 20):
        assert len(set(found)) == min(names, 20)
        assert set(found) <= fleet.matrices.held.keys()


async def test_a_pair_has_a_directory_while_it_has_many_lookups() -> None:
    fleet = fleet_with(6, 300)
    await fleet.maintain()
    assert fleet.found([TAG], 10) == [[]] * 6, "six lookups are too few"
    await fleet.maintain(2)
    assert [fleet.found([TAG], 10) for _ in range(20)] == [[[]] * 6] * 20
    await fleet.maintain(2)
    assert all(len(found) == 10 for found in fleet.found([TAG], 10))
    assert {each.pair for node in fleet.nodes.values() for each in node.coordinated} == {DISCOVER, TAG}
    await fleet.maintain(10)
    assert fleet.found([TAG], 10) == [[]] * 6


async def test_only_names_with_all_pairs_are_found() -> None:
    fleet = fleet_with(3, 400)
    await fleet.maintain()
    for found in fleet.found([DISCOVER, TAG], 10):
        assert len(found) == 10
        assert all("TAG=PYTHON" in fleet.matrices.held[name] for name in found)


async def test_removed_names_are_not_found_after_the_next_maintenance() -> None:
    fleet = fleet_with(4, 500)
    assert [fleet.found([DISCOVER], 20) for _ in range(20)]
    await fleet.maintain(2)
    kept = {name: pairs for name, pairs in fleet.matrices.held.items() if int(name.split()[1]) % 3}
    fleet.matrices.held = kept | {"new": frozenset({"STATUS=OK"})}
    await fleet.maintain()
    for found in fleet.found([DISCOVER], 500):
        assert len(found) >= MIN_TARGET
        assert set(found) <= fleet.matrices.held.keys()
    assert "new" in set().union(*fleet.found([DISCOVER], 500))


async def test_unchanged_names_are_read_only_when_they_are_placed_again() -> None:
    fleet = fleet_with(3, 500)
    await fleet.maintain(2 * UPDATES_PER_PLACEMENT)
    assert fleet.matrices.reads == 2
    assert all(len(found) == 20 for found in fleet.found([DISCOVER], 20))


async def test_a_changed_name_is_found_by_its_present_pairs() -> None:
    fleet = fleet_with(2, 10)
    await fleet.maintain()
    fleet.matrices.held["name 1"] = frozenset({"STATUS=OK", "LANG=DE"})
    await fleet.maintain()
    assert fleet.found([DISCOVER, "lang=de"], 5) == [["name 1"], ["name 1"]]
    assert all("name 1" not in found for found in fleet.found([DISCOVER, TAG], 10))


async def test_a_new_ring_has_no_shares_until_the_next_maintenance() -> None:
    fleet = fleet_with(6, 500)
    await fleet.maintain()
    fleet.rejoin(NODES[1:5])
    assert fleet.found([DISCOVER], 5) == [[]] * 4
    await fleet.maintain()
    assert all(len(found) == 5 for found in fleet.found([DISCOVER], 5))


async def test_a_share_without_updates_expires_and_is_placed_again() -> None:
    fleet = fleet_with(3, 500)
    await fleet.maintain()
    deaf = next(node for node, directories in fleet.nodes.items() if not directories.coordinated)
    fleet.lost = {deaf}
    await fleet.maintain(5)
    assert fleet.nodes[deaf].find([DISCOVER], 5) == []
    fleet.lost = set()
    await fleet.maintain(6)
    assert len(fleet.nodes[deaf].find([DISCOVER], 5)) == 5


async def test_shares_are_used_while_the_store_is_unavailable() -> None:
    fleet = fleet_with(2, 50)
    await fleet.maintain()
    fleet.matrices.down = True
    await fleet.maintain()
    assert all(len(found) == 5 for found in fleet.found([DISCOVER], 5))


async def test_messages_of_another_ring_or_version_change_nothing() -> None:
    fleet = fleet_with(2, 50)
    for directories in fleet.nodes.values():
        await directories.maintain()
    ((to, old),) = fleet.messages
    fleet.rejoin(list(fleet.nodes))
    for payload in (b"", b"\xc1", encode_letter([]), old):
        await fleet.nodes[to].on_message(payload)
    assert fleet.nodes[to].find([DISCOVER], 5) == []


async def test_the_choice_of_a_strategy_has_reasons() -> None:
    fleet = fleet_with(6, 3000)
    await fleet.maintain()
    (choice,) = (each.choice for node in fleet.nodes.values() for each in node.coordinated)
    assert choice.reasons
    assert isinstance(
        decode_letter(encode_letter([ShareUpdate("a=b", PlacementTerm(1, 1), choice.strategy)]))[0], ShareUpdate
    )
