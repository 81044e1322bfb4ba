"""Hysteresis: under a constant or nearly constant load, moves end, and no group splits and merges again."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, Keyspaces
from service.clash.move_steps import InitialStep
from service.clash.split_merge_policy import LoadLimits
from service.simulate.clash.servers import PREFIX_BITS, Interval, PrefixSums, SimulatedServers

SERVERS = 20
"""So few that several groups often share one."""
FLUCTUATION = 0.12
HEAT = st.dictionaries(st.integers(0, (1 << PREFIX_BITS) - 1), st.integers(1, 80), min_size=1, max_size=6)
NO_QUERIES = np.zeros(1 << PREFIX_BITS, np.int64)


class OneServerPerGroup:
    """A map that gives each group a server of its own."""

    def __init__(self) -> None:
        self._places: dict[int, Keyspace] = {}

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        return self._places.setdefault(group.key, len(self._places))


class CountingServers(SimulatedServers):
    """Servers that count how often each group was split or merged."""

    def __init__(self, keyspaces: KeyspaceMap, servers: int) -> None:
        super().__init__(keyspaces, servers, LoadLimits(100.0))
        self.started: Counter[InitialStep] = Counter()

    def _execute_move(self, first: InitialStep, queries: PrefixSums) -> None:
        self.started[first] += 1
        super()._execute_move(first, queries)


def interval_of(heat: dict[int, int], factors: list[float]) -> Interval:
    packets = np.zeros(1 << PREFIX_BITS)
    for place, (cell, load) in enumerate(heat.items()):
        packets[cell] = load * factors[place % len(factors)]
    return Interval(packets, NO_QUERIES, NO_QUERIES, packets)


@settings(max_examples=25)
@given(HEAT, HEAT)
def test_under_a_constant_load_all_moves_end(before: dict[int, int], heat: dict[int, int]) -> None:
    """From any distribution of groups that an earlier load has left."""
    servers = CountingServers(Keyspaces(SERVERS), SERVERS)
    for load in (interval_of(before, [1.0]), interval_of(heat, [1.0])):
        for _ in range(4):
            servers.split_overloaded(load)
            servers.merge_underloaded(load)
    servers.started.clear()
    servers.split_overloaded(load)
    servers.merge_underloaded(load)
    assert not servers.started


@settings(max_examples=25)
@given(
    HEAT,
    st.lists(st.lists(st.floats(1 - FLUCTUATION, 1 + FLUCTUATION), min_size=1, max_size=5), min_size=1, max_size=6),
)
def test_under_a_fluctuating_load_no_group_moves_twice(heat: dict[int, int], wobbles: list[list[float]]) -> None:
    """Of groups that are alone on their servers; others may have to make room."""
    servers = CountingServers(OneServerPerGroup(), 200)
    for wobble in wobbles:
        servers.split_overloaded(interval_of(heat, wobble))
        servers.merge_underloaded(interval_of(heat, wobble))
    assert max(servers.started.values(), default=0) <= 1
