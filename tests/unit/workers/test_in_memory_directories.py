"""Lookup directories: a fleet of nodes and their messages, over names in a dictionary."""

from collections import deque
from collections.abc import Hashable, Sequence
from random import Random

import pytest

from service.discovery.discover_listings import MAX_CANDIDATES, WORKING
from service.discovery.partial_lookup.node_shares import (
    DirectoryAnnouncement,
    DirectoryMessage,
    LookupCount,
    NamesOfPair,
    PlacementTerm,
    ShareUpdate,
    decode_message,
    encode_message,
)
from service.discovery.partial_lookup.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy
from service.discovery.partial_lookup.strategy_choice import MIN_ENTRIES, STEADY_READINGS
from service.errors import StoreUnavailable
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from service.store.directory.lookup_directory_client import DirectoryAnnouncements
from service.store.directory.matrix_directory import MatrixNameReader
from workers.in_memory_directories import DISCOVER_PAIRS, MIN_LOOKUPS, InMemoryDirectories

NODES = [f"{number:x}5" * 20 for number in range(6)]
TAG = "tag=python"
HOT = int(20 * MIN_LOOKUPS)


class MemoryNames(MatrixNameReader):
    """Names with their pairs; unavailable while ``down``. Names with smaller numbers have greater weights."""

    def __init__(self) -> None:
        self.held: dict[str, frozenset[str]] = {}
        self.down = False

    async def names_of(self, pair: str, max_count: int, known_mark: Hashable) -> NamesOfPair | None:
        if self.down:
            raise StoreUnavailable("Redis is away.")
        names = [name for name, pairs in self.held.items() if pair in pairs]
        if frozenset(names) == known_mark:
            return None
        ranked = sorted(names, key=lambda name: int(name.split()[1]))
        weighted = [(name, 255 - min(int(name.split()[1]), 255)) for name in ranked[:max_count]]
        return NamesOfPair(weighted, len(names), frozenset(names))

    async def pairs_of(self, names: Sequence[str]) -> list[frozenset[str]]:
        return [self.held.get(name, frozenset()) for name in names]


class MemoryAnnouncements(DirectoryAnnouncements):
    """The announcements since the last maintenance."""

    def __init__(self) -> None:
        self.held: dict[str, DirectoryAnnouncement] = {}

    async def announce(self, directories: Sequence[DirectoryAnnouncement], now_s: float, until_s: float) -> None:  # noqa: ARG002 - as in the base class
        self.held |= {each.pair: each for each in directories}


class Fleet:
    """Nodes of one ring; messages arrive in order, except at ``lost`` nodes."""

    def __init__(self, count: int) -> None:
        self.names = MemoryNames()
        self.messages: deque[tuple[NodeId, bytes]] = deque()
        self.sent_bytes = 0
        self.lost: set[NodeId] = set()
        self.version = 0
        self.announcements = MemoryAnnouncements()
        self.nodes = {
            node: InMemoryDirectories(
                node,
                self.names,
                self.announcements,
                self.send,
                random=Random(node),  # noqa: S311 - not secret
                interval_s=10.0,
            )
            for node in NODES[:count]
        }
        self.rejoin(NODES[:count])

    async def send(self, messages: Sequence[tuple[NodeId, DirectoryMessage]]) -> None:
        encoded = [(node, encode_message(parts)) for node, parts in messages]
        self.messages.extend(encoded)
        self.sent_bytes += sum(len(payload) for _, payload in encoded)

    @property
    def announced(self) -> dict[str, DirectoryAnnouncement]:
        return self.announcements.held

    def rejoin(self, nodes: Sequence[NodeId]) -> None:
        self.version += 1
        view = RingView(self.version, tuple(NodeInfo(node, 1, node, 0.0) for node in nodes))
        self.nodes = {node: directories for node, directories in self.nodes.items() if node in view}
        for directories in self.nodes.values():
            directories.on_ring_changed(view)

    async def maintain(self, times: int = 1, *, lookups: int = 0, target: int = 20) -> None:
        for _ in range(times):
            self.announcements.held = {}
            for directories in self.nodes.values():
                if lookups:
                    await directories.on_message(encode_message([LookupCount(TAG, lookups, target)]))
                await directories.maintain(0.0)
            while self.messages:
                to, payload = self.messages.popleft()
                if to in self.nodes and to not in self.lost:
                    await self.nodes[to].on_message(payload)

    def found(self, directory: str, pairs: Sequence[str], limit: int) -> list[list[str]]:
        return [list(node.find(directory, pairs, limit).names) for node in self.nodes.values()]

    @property
    def coordinator(self) -> NodeId:
        """The node that coordinates the directory of ``TAG``."""
        return next(node for node, own in self.nodes.items() if any(each.pair == TAG for each in own.coordinated))

    @property
    def strategy(self) -> Strategy:
        """The present strategy of the directory of ``TAG``."""
        return self.announced[TAG].strategy


def fleet_with(count: int, names: int) -> Fleet:
    fleet = Fleet(count)
    fleet.names.held = {
        f"name {number}": frozenset({WORKING, TAG, *(["lang=de"] if number % 2 else [])}) for number in range(names)
    }
    return fleet


@pytest.mark.parametrize("count", [1, 2, 6])
@pytest.mark.parametrize("names", [1, 50, 2000])
async def test_every_node_has_the_best_channels_for_browsing(count: int, names: int) -> None:
    fleet = fleet_with(count, names)
    await fleet.maintain()
    for found in fleet.found(WORKING, [WORKING], 20):
        assert found == [f"name {number}" for number in range(min(names, 20))]
    announced = fleet.announced[WORKING]
    assert (announced.strategy, announced.is_complete) == (FullReplication(), names <= MAX_CANDIDATES)


async def test_a_ring_that_changes_during_maintenance_causes_no_error() -> None:
    fleet = fleet_with(1, 50)
    (directories,), read = fleet.nodes.values(), fleet.names.names_of

    async def read_while_others_join(pair: str, max_count: int, known_mark: Hashable) -> NamesOfPair | None:
        fleet.rejoin(NODES)
        return await read(pair, max_count, known_mark)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet.names, "names_of", read_while_others_join)
        await directories.maintain(0.0)
    assert not any(map(directories.is_coordinator, DISCOVER_PAIRS))
    assert directories.coordinated == ()


async def test_a_pair_has_a_directory_while_it_has_many_lookups() -> None:
    fleet = fleet_with(6, MIN_ENTRIES)
    await fleet.maintain()
    assert TAG not in fleet.announced
    await fleet.maintain(2, lookups=HOT)
    assert all(len(found) == 20 for found in fleet.found(TAG, [TAG], 20))
    assert TAG in fleet.announced
    await fleet.maintain(15)
    assert TAG not in fleet.announced
    assert fleet.found(TAG, [TAG], 20) == [[]] * 6


async def test_a_pair_with_few_names_has_no_directory() -> None:
    fleet = fleet_with(3, MIN_ENTRIES - 1)
    await fleet.maintain(3, lookups=HOT)
    assert TAG not in fleet.announced


async def test_only_names_with_all_pairs_are_found() -> None:
    fleet = fleet_with(3, MIN_ENTRIES)
    await fleet.maintain(2, lookups=HOT)
    for found in fleet.found(TAG, [TAG, "lang=de"], 10):
        assert len(found) == 10
        assert all("lang=de" in fleet.names.held[name] for name in found)


async def test_removed_names_are_not_found_after_the_next_maintenance() -> None:
    fleet = fleet_with(4, 2000)
    await fleet.maintain(2, lookups=HOT)
    kept = {name: pairs for name, pairs in fleet.names.held.items() if int(name.split()[1]) % 3}
    fleet.names.held = kept | {"name 99999": frozenset({TAG})}
    await fleet.maintain(lookups=HOT)
    found = fleet.found(TAG, [TAG], 2000)
    assert set().union(*found) <= fleet.names.held.keys()
    assert all(len(own) >= 20 for own in found)
    assert "name 99999" in set().union(*found)


async def test_a_name_whose_other_pairs_change_is_not_sent_again() -> None:
    fleet = fleet_with(2, MIN_ENTRIES)
    await fleet.maintain(2, lookups=HOT)
    await fleet.maintain(lookups=HOT)
    idle_bytes, fleet.sent_bytes = fleet.sent_bytes, 0
    await fleet.maintain(lookups=HOT)
    idle_bytes, fleet.sent_bytes = fleet.sent_bytes, 0
    fleet.names.held = {name: frozenset({WORKING, TAG, "lang=fr"}) for name in fleet.names.held}
    await fleet.maintain(lookups=HOT)
    assert fleet.sent_bytes == idle_bytes
    await fleet.maintain(60, lookups=HOT)
    assert all(len(found) == 10 for found in fleet.found(TAG, [TAG, "lang=fr"], 10))


async def test_former_shares_are_used_until_the_shares_of_a_new_ring_are_placed() -> None:
    fleet = fleet_with(6, MIN_ENTRIES)
    await fleet.maintain(2, lookups=HOT)
    fleet.rejoin(NODES[1:5])
    assert all(len(found) == 5 for found in fleet.found(WORKING, [WORKING], 5))
    await fleet.maintain()
    assert all(len(found) == 5 for found in fleet.found(WORKING, [WORKING], 5))


async def test_a_server_that_has_missed_an_update_gets_all_entries_again() -> None:
    fleet = fleet_with(3, MIN_ENTRIES)
    await fleet.maintain(4, lookups=HOT)
    deaf = next(node for node in fleet.nodes if node != fleet.coordinator)
    fleet.lost = {deaf}
    fleet.names.held |= {f"name {9000 + number}": frozenset({TAG}) for number in range(30)}
    await fleet.maintain(lookups=HOT)
    fleet.lost = set()
    await fleet.maintain(2, lookups=HOT)
    listed = set().union(*(own.share(TAG) for own in fleet.nodes.values()))
    assert {f"name {9000 + number}" for number in range(30)} <= listed


async def test_a_share_without_updates_expires_and_is_placed_again() -> None:
    fleet = fleet_with(3, 500)
    await fleet.maintain()
    deaf = next(node for node, own in fleet.nodes.items() if all(each.pair != WORKING for each in own.coordinated))
    fleet.lost = {deaf}
    await fleet.maintain(5)
    assert fleet.nodes[deaf].find(WORKING, [WORKING], 5).names == ()
    fleet.lost = set()
    await fleet.maintain(2)
    assert len(fleet.nodes[deaf].find(WORKING, [WORKING], 5).names) == 5


async def test_shares_are_used_while_the_store_is_unavailable() -> None:
    fleet = fleet_with(2, 50)
    await fleet.maintain()
    fleet.names.down = True
    await fleet.maintain()
    assert all(len(found) == 5 for found in fleet.found(WORKING, [WORKING], 5))


async def test_messages_of_another_ring_or_version_change_nothing() -> None:
    fleet = fleet_with(2, 50)
    for directories in fleet.nodes.values():
        await directories.maintain(0.0)
    ((to, old),) = fleet.messages
    fleet.rejoin(list(fleet.nodes))
    for payload in (b"", b"\xc1", encode_message([]), old):
        await fleet.nodes[to].on_message(payload)
    assert fleet.nodes[to].find(WORKING, [WORKING], 5).names == ()


@pytest.mark.parametrize(
    ("names", "target", "changes", "strategy"),
    [
        (MIN_ENTRIES, MIN_ENTRIES, 0, FullReplication),
        (MIN_ENTRIES, 20, 0, RoundRobin),
        (8000, 20, 0, RandomServer),
        (3000, 20, 100, Fixed),
        (MIN_ENTRIES, 98, 100, Hash),
    ],
)
async def test_the_strategy_follows_the_measured_load(
    names: int, target: int, changes: int, strategy: type[Strategy]
) -> None:
    """``changes`` is the number of names that are replaced in each interval."""
    fleet = fleet_with(5, names)
    for interval in range(STEADY_READINGS + 3):
        for number in range(changes):
            held = fleet.names.held
            del held[next(reversed(held)) if number % 2 else next(iter(held))]
            held[f"name {100_000 + interval * changes + number}"] = frozenset({TAG})
        await fleet.maintain(lookups=60, target=target)
    assert isinstance(fleet.strategy, strategy)
    assert all(own.names for own in (node.find(TAG, [TAG], target) for node in fleet.nodes.values()))


async def test_the_choice_of_a_strategy_has_reasons() -> None:
    fleet = fleet_with(6, 3000)
    await fleet.maintain()
    (choice,) = (each.choice for node in fleet.nodes.values() for each in node.coordinated)
    assert choice.reasons
    assert isinstance(
        decode_message(encode_message([ShareUpdate("a=b", PlacementTerm(1, 1), choice.strategy)]))[0], ShareUpdate
    )
