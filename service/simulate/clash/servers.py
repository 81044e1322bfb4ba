"""The world of CLASH §VI: workloads A, B and C, sources whose keys change, clients with queries, and servers.

A key has 24 bits. Its first 8 are skewed, by the workload; the rest is uniform. The paper draws its skews as curves
(Figure 6) without numbers. What is known of them: A is nearly uniform, C the most skewed, and DHT(6)'s hottest server
has 25 times its capacity, and DHT(12) uses 450 to 800 servers. Ours: A is uniform; B and C fall off exponentially on
both sides of a peak, C's so steep that its hottest group of 6 bits carries half the traffic, which gives both numbers.
Real popularity is no smooth curve: each of the 256 values is up to 30 % (A: 10 %) more or less popular than that.

Servers have production's tables, policy and moves. A look or check takes no time here: what a server decides is carried
through before the next interval. Each decides on what it measured of its keys in the last one, and goes on until it is
content.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash import move_steps
from service.clash.key_groups import HASH_BITS, KeyGroup, Keyspace, KeyspaceMap, hash_key
from service.clash.load_policy import (
    LoadLimits,
    choose_merge,
    choose_recall,
    choose_split,
    group_load,
    lone_right_children,
    sibling_pairs,
)
from service.clash.move_steps import next_step
from service.clash.server_table import LEAF_STATES, ServerTable, empty_table, root_table
from service.clash.transitions import has_given, mark_emptied
from service.simulate.schedulers.publication_trace import HOUR_S, MINUTE_S, Floats, Ints

KEY_BITS = 24
BASE_BITS = 8
SEEN_BITS = 16
"""Loads are kept by the first 16 bits; the later ones are uniform."""

PHASE_S = 2 * HOUR_S
CHECK_S = 5 * MINUTE_S
LOOK_S = MINUTE_S
"""So often a server looks whether it has too much. Whether it has too little it asks at each check."""
LOOKS = round(CHECK_S / LOOK_S)
QUERY_LIFE_S = 30 * MINUTE_S
PEAK = 130.0
"""In the middle of a group of 6 bits."""

PACKETS_PER_S: Mapping[str, float] = {"A": 1.0, "B": 2.0, "C": 2.0}
"""Of one source, by workload."""

_WIDTH = {"B": 32.0, "C": 2.885}
_HYSTERESIS = 0.005
_ROUGH = {"A": 0.1, "B": 0.3, "C": 0.3}


class MapKind(StrEnum):
    """How servers share the hash space: production's equal parts, or the paper's Chord with random points."""

    EVEN = "even"
    CHORD = "chord"


class Setup(msgspec.Struct, frozen=True):
    """One run. ``stream_packets`` is L_d, the mean number of packets for which a source keeps its key.

    ``overload`` and ``merged`` are thresholds as in :class:`service.clash.load_policy.LoadLimits`. A server's load
    varies by 1 % from minute to minute, far less than fan-outs make a keyspace's vary: so it is filled up to just
    below the limit, which costs one move in six and fills servers as well as the tree allows.
    """

    stream_packets: int = 1000
    queries: int = 0
    map: MapKind = MapKind.EVEN
    overload: float = 0.90
    servers: int = 1000
    sources: int = 100_000
    capacity_packets_s: float = 4000.0

    @property
    def merged(self) -> float:
        """Below which share a merge is due."""
        return self.overload - _HYSTERESIS


def base_shares(rng: np.random.Generator) -> dict[str, Floats]:
    """Return for each workload the share of the traffic that each value of the first 8 bits has, shape (256,)."""
    place = np.arange(1 << BASE_BITS) + 0.5
    curves = {"A": np.ones_like(place)} | {
        name: np.exp(-np.abs(place - PEAK) / width) for name, width in _WIDTH.items()
    }
    rough = {
        name: curve * rng.uniform(1 - _ROUGH[name], 1 + _ROUGH[name], len(place)) for name, curve in curves.items()
    }
    return {name: shares / shares.sum() for name, shares in rough.items()}


def draw_keys(upto: Floats, count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Draw so many keys, given the cumulative shares of their first 8 bits."""
    base = np.searchsorted(upto, rng.random(count)).clip(max=len(upto) - 1)
    rest = KEY_BITS - BASE_BITS
    return (base << rest | rng.integers(0, 1 << rest, count)).astype(np.uint32)


class Interval(msgspec.Struct, frozen=True):
    """What happened for a while, by the first 16 bits of the key, and to each server of DHT(24); packets are per s."""

    packets: Floats
    lookups: Ints
    queries: Ints
    by_whole_key: Floats


class Sources:
    """All sources and query clients, from the first workload on."""

    def __init__(self, setup: Setup, whole_key_server: NDArray[np.uint16], rng: np.random.Generator) -> None:
        """Draw the first streams; ``whole_key_server`` is DHT(24)'s map, shape (2²⁴,)."""
        self._setup, self._server, self._rng = setup, whole_key_server, rng
        self._upto = {name: np.cumsum(shares) for name, shares in base_shares(rng).items()}
        self.keys = draw_keys(self._upto["A"], setup.sources, rng)
        self._left = rng.exponential(setup.stream_packets, setup.sources)
        self._queries = draw_keys(self._upto["A"], setup.queries, rng)
        self._new = np.concatenate([self.keys, self._queries])

    def run(self, workload: str) -> Interval:
        """Let the time between two looks pass."""
        rate, setup = PACKETS_PER_S[workload], self._setup
        packets, whole = np.zeros(1 << SEEN_BITS), np.zeros(setup.servers)
        lookups = _seen(self._new)
        free = np.full(setup.sources, LOOK_S * rate)
        going = np.arange(setup.sources)
        while going.size:
            keys = self.keys[going]
            sent = np.minimum(self._left[going], free[going])
            packets += np.bincount(keys >> (KEY_BITS - SEEN_BITS), sent, 1 << SEEN_BITS)
            whole += np.bincount(self._server[keys], sent, setup.servers)
            self._left[going] -= sent
            free[going] -= sent
            going = going[free[going] > 0]
            self.keys[going] = draw_keys(self._upto[workload], going.size, self._rng)
            self._left[going] = self._rng.exponential(setup.stream_packets, going.size)
            lookups += _seen(self.keys[going])
        self._new = self._renew_queries(workload)
        return Interval(packets / LOOK_S, lookups, _seen(self._queries), whole / LOOK_S)

    def redirect(self, groups: Sequence[KeyGroup]) -> None:
        """Let the sources whose key's group has moved look it up once more."""
        moved = [self.keys[(self.keys >= group.key) & (self.keys <= group.last)] for group in groups]
        self._new = np.concatenate([self._new, *moved])

    def _renew_queries(self, workload: str) -> NDArray[np.uint32]:
        over = self._rng.random(len(self._queries)) < -np.expm1(-LOOK_S / QUERY_LIFE_S)
        self._queries[over] = fresh = draw_keys(self._upto[workload], int(over.sum()), self._rng)
        return fresh


def together(looks: Sequence[Interval]) -> Interval:
    """Return several intervals as one."""
    packets, whole = (np.mean([getattr(look, name) for look in looks], 0) for name in ("packets", "by_whole_key"))
    lookups = np.sum([look.lookups for look in looks], 0)
    return Interval(packets, lookups, looks[-1].queries, whole)


def _seen(keys: NDArray[np.uint32]) -> Ints:
    return np.bincount(keys >> (KEY_BITS - SEEN_BITS), minlength=1 << SEEN_BITS)


MOST_ROUNDS = 64


class Chord:
    """The paper's Map: servers at random points of a circle, each with the hashes up to its own."""

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self.points = np.sort(rng.random(servers))

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the group's server."""
        return int(np.searchsorted(self.points, hash_key(group) / 2**HASH_BITS) % len(self.points))


class Sums:
    """Σ over any group of what is kept by the first 16 bits."""

    def __init__(self, values: Floats | Ints) -> None:
        self._upto = np.concatenate([[0.0], np.cumsum(values)])

    def of(self, group: KeyGroup) -> float:
        """Return the sum over a group's keys; what is told apart by later bits only is spread evenly."""
        hidden = KEY_BITS - SEEN_BITS
        found = self._upto[(group.last >> hidden) + 1] - self._upto[group.key >> hidden]
        return float(found) / (1 << max(0, group.depth - SEEN_BITS))


Measured = dict[Keyspace, dict[KeyGroup, float]]
Due = Callable[[Keyspace, Measured], move_steps.InitialStep | None]


class Servers:
    """All servers' tables. ``messages`` between servers are counted, ``moved`` are the groups that changed servers."""

    def __init__(self, keyspaces: KeyspaceMap, count: int, limits: LoadLimits) -> None:
        root = keyspaces.keyspace_of(KeyGroup(0, 0, KEY_BITS))
        self.keyspaces, self.limits = keyspaces, limits
        self._tables = [empty_table(keyspace, KEY_BITS) for keyspace in range(count)]
        self._tables[root] = root_table(root, KEY_BITS)
        self.messages = 0.0
        self.moved: list[KeyGroup] = []
        self.splits = self.merges = self.recalls = 0

    def table(self, keyspace: Keyspace) -> ServerTable:
        """Return one server's table."""
        return self._tables[keyspace]

    def leaves(self) -> Iterator[tuple[Keyspace, KeyGroup]]:
        """Yield all leaves and who has them."""
        for table in self._tables:
            for group, entry in table.entries.items():
                if entry.state in LEAF_STATES:
                    yield table.keyspace, group

    def loads(self, interval: Interval) -> Measured:
        """Return what each server measured of its leaves."""
        return self._loads(Sums(interval.packets), Sums(interval.queries))

    def _loads(self, packets: Sums, queries: Sums) -> Measured:
        found: Measured = {}
        for keyspace, group in self.leaves():
            found.setdefault(keyspace, {})[group] = group_load(packets.of(group), queries.of(group))
        return found

    def look(self, interval: Interval) -> None:
        """Let every server split until none has too much; what is counted begins anew."""
        self.messages, self.moved = 0.0, []
        self._until_content(interval, lambda keyspace, loads: choose_split(keyspace, loads[keyspace], self.limits))

    def check(self, interval: Interval) -> None:
        """Let every server merge, or recall, what was small since the last check."""
        for find in (sibling_pairs, lone_right_children):
            self.messages += sum(len(find(table, self._tables, {})) for table in self._tables)
        self._until_content(interval, self._merge_due)

    def _merge_due(self, keyspace: Keyspace, loads: Measured) -> move_steps.MergeGroup | move_steps.RecallGroup | None:
        table, own = self._tables[keyspace], loads[keyspace]
        return choose_merge(keyspace, own, sibling_pairs(table, self._tables, loads), self.limits) or choose_recall(
            keyspace, own, lone_right_children(table, self._tables, loads), self.limits
        )

    def _until_content(self, interval: Interval, due: Due) -> None:
        packets, queries = Sums(interval.packets), Sums(interval.queries)
        loads = self._loads(packets, queries)
        for _ in range(MOST_ROUNDS):
            acted = False
            for keyspace in sorted(loads):
                step = due(keyspace, loads) if keyspace in loads else None
                if step is not None:
                    acted = True
                    self._carry_through(step, queries)
                    loads = self._loads(packets, queries)
            if not acted:
                return

    def _carry_through(self, first: move_steps.InitialStep, queries: Sums) -> None:
        step: move_steps.Step | None = first
        self.splits += isinstance(first, move_steps.SplitGroup)
        self.merges += isinstance(first, move_steps.MergeGroup)
        self.recalls += isinstance(first, move_steps.RecallGroup)
        while step is not None:
            outcome = self._carry_out(step)
            if isinstance(outcome, move_steps.MoveStarted) and outcome.move is not None:
                self.moved.append(outcome.move.group)
                self.messages += queries.of(outcome.move.group)
            step = next_step(step, outcome)

    def _carry_out(self, step: move_steps.Step) -> move_steps.Outcome:
        keyspace = move_steps.keyspace_of(step)
        table = self._tables[keyspace] = move_steps.apply(self._tables[keyspace], step, self.keyspaces)
        match step:
            case move_steps.SplitGroup() | move_steps.MergeGroup() | move_steps.RecallGroup():
                return move_steps.MoveStarted(table.move)
            case move_steps.GiveKeyGroup():
                self.messages += 2
                return move_steps.GiveResult(has_given(table, step.move))
            case move_steps.Fetch():
                self._tables[keyspace] = mark_emptied(table, step.move)
                return move_steps.FetchResult(())
            case move_steps.AcceptKeyGroup() | move_steps.Settle() | move_steps.Forget():
                self.messages += 2
        return move_steps.StepDone()
