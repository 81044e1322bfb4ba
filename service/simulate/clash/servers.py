"""The simulated servers and traffic of CLASH §VI: three workloads, sources with changing keys, and stored queries.

A key has 24 bits. The last 16 bits are uniformly distributed. The distribution of the first 8 bits depends on the
workload: it is uniform in workload A. In B and C, it decreases exponentially on both sides of a peak, more steeply in C
than in B.

Servers use production code: their tables, their policy, and the protocol for moving groups of keys. All moves are
complete before the next interval begins.
"""

# The paper shows the distributions of the three workloads only as curves (Figure 6). It states that A is nearly uniform
# and C the most skewed. It also states two numbers: the hottest server of DHT(6) has 25 times its capacity, and DHT(12)
# uses 450 to 800 servers. Here C is so steep that half of its traffic falls into one group of 6 bits; both numbers of
# the paper then follow. Real popularity is irregular. Therefore the frequency of each of the 256 values is varied at
# random by up to 30 % (A: 10 %).
#
# Each server decides from its load in the last interval, and decides again until no key group has to be split or
# merged. With the product's defaults ("as shipped"), it decides from rates that are averaged over several intervals, as
# the product measures them.

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash import move_steps
from service.clash.key_groups import HASH_BITS, KeyGroup, Keyspace, KeyspaceMap, hash_key
from service.clash.move_steps import next_step
from service.clash.server_table import LEAF_STATES, empty_table, root_table
from service.clash.split_merge_policy import (
    DeliveryRate,
    HalfLives,
    LoadLimits,
    choose_merge,
    choose_split,
    group_load,
    sibling_pairs,
)
from service.clash.table_transitions import is_giving, mark_emptied
from service.corona.fleet_policy import DEFAULT_POLICY
from service.simulate.numerics import HOUR_S, MINUTE_S, Floats, Ints

KEY_BITS = 24
BASE_BITS = 8
PREFIX_BITS = 16
"""Traffic is counted by the first 16 bits of keys, because the other 8 bits are uniformly distributed."""

PHASE_S = 2 * HOUR_S
CHECK_S = 5 * MINUTE_S
SPLIT_CHECK_S = MINUTE_S
"""Interval at which servers check whether to split groups. They check whether to merge groups every ``CHECK_S``."""
QUERY_LIFE_S = 30 * MINUTE_S
PEAK = 130.0
"""The most popular value of a key's first 8 bits in workloads B and C. It is in the middle of a group of keys that
share their first 6 bits."""

PACKETS_PER_S: Mapping[str, float] = {"A": 1.0, "B": 2.0, "C": 2.0}
"""Packets per second of one source, by workload."""

_WIDTH = {"B": 32.0, "C": 2.885}
_VARIATION = {"A": 0.1, "B": 0.3, "C": 0.3}


class MapKind(StrEnum):
    """How the hashes of keys are divided among servers.

    - EVEN is the map used in production: all servers get the same number of hashes.
    - CHORD is the paper's map: each server is at a random point on a circle, so the servers' shares of the hashes
      differ.
    """

    EVEN = "even"
    CHORD = "chord"


class ClashSetup(msgspec.Struct, frozen=True):
    """The parameters of one run. A key group is the set of all keys with the same leading bits.

    - ``stream_packets`` is the mean number of packets that a source sends before it changes its key (L_d in CLASH §VI).
    - ``queries`` is the number of clients that have stored a query on a server.
    - ``overload`` is the load above which a server splits a key group, as a fraction of the server's capacity.
    - ``merged`` limits merges: two groups are merged only if the server's load stays below this fraction of its
      capacity.
    - ``as_shipped``: whether to use the product's default thresholds and its decaying mean loads
      (:class:`MeasuredRates`). Servers then check their load every 10 s, the product's maintenance interval.
    """

    # The two thresholds are close together. That is possible because the load of a simulated server varies by only 1 %
    # from minute to minute, far less than in production. Close thresholds make servers as busy as the tree of groups
    # allows, but cause one move in six.

    stream_packets: int = 1000
    queries: int = 0
    map: MapKind = MapKind.EVEN
    overload: float = 0.90
    merged: float = 0.895
    servers: int = 1000
    sources: int = 100_000
    capacity_packets_s: float = 4000.0
    as_shipped: bool = False

    @property
    def limits(self) -> LoadLimits:
        """The load above which a server splits key groups, and the load below which it merges them."""
        if self.as_shipped:
            return LoadLimits(self.capacity_packets_s)
        return LoadLimits(self.capacity_packets_s, self.overload, self.merged)

    @property
    def interval_s(self) -> float:
        """The time in seconds between two checks for overload."""
        return DEFAULT_POLICY.maintenance_interval_s if self.as_shipped else SPLIT_CHECK_S

    @property
    def intervals_per_check(self) -> int:
        """The number of intervals, each ``interval_s`` seconds long, from one load measurement to the next.

        Loads are measured every ``CHECK_S`` seconds.
        """
        return round(CHECK_S / self.interval_s)


def base_shares(rng: np.random.Generator) -> dict[str, Floats]:
    """Map each workload to the probabilities of the 256 values of a key's first 8 bits, as an array of shape (256,)."""
    place = np.arange(1 << BASE_BITS) + 0.5
    curves = {"A": np.ones_like(place)} | {
        name: np.exp(-np.abs(place - PEAK) / width) for name, width in _WIDTH.items()
    }
    varied = {
        name: curve * rng.uniform(1 - _VARIATION[name], 1 + _VARIATION[name], len(place))
        for name, curve in curves.items()
    }
    return {name: shares / shares.sum() for name, shares in varied.items()}


def draw_keys(upto: Floats, count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Draw ``count`` keys of 24 bits.

    ``upto`` is the cumulative distribution of the keys' first 8 bits; its shape is (256,).
    """
    base = np.searchsorted(upto, rng.random(count)).clip(max=len(upto) - 1)
    rest = KEY_BITS - BASE_BITS
    return (base << rest | rng.integers(0, 1 << rest, count)).astype(np.uint32)


class Interval(msgspec.Struct, frozen=True):
    """The traffic in one interval between checks for overload. A prefix is the first 16 bits of a key.

    - ``packets`` contains the packets per second for each prefix.
    - ``lookups`` contains the number of lookups for each prefix.
    - ``queries`` contains the number of stored queries for each prefix.
    - ``by_whole_key`` contains the packets per second that each server would get in a plain hash table with keys of 24
      bits.
    """

    packets: Floats
    lookups: Ints
    queries: Ints
    by_whole_key: Floats


class TrafficSources:
    """All sources of packets, and all clients that have stored a query."""

    def __init__(self, setup: ClashSetup, whole_key_server: NDArray[np.uint16], rng: np.random.Generator) -> None:
        """Draw the first key of every source and of every stored query.

        ``whole_key_server`` is for the comparison with a plain hash table in which keys have 24 bits. It contains the
        index of each key's server; its shape is (2²⁴,).
        """
        self._setup, self._server, self._rng = setup, whole_key_server, rng
        self._upto = {name: np.cumsum(shares) for name, shares in base_shares(rng).items()}
        self.keys = draw_keys(self._upto["A"], setup.sources, rng)
        self._left = rng.exponential(setup.stream_packets, setup.sources)
        self._queries = draw_keys(self._upto["A"], setup.queries, rng)
        self._new = np.concatenate([self.keys, self._queries])

    def run(self, workload: str) -> Interval:
        """Simulate one interval between checks for overload and return its traffic. ``workload`` is "A", "B" or "C"."""
        rate, setup, interval_s = PACKETS_PER_S[workload], self._setup, self._setup.interval_s
        packets, whole = np.zeros(1 << PREFIX_BITS), np.zeros(setup.servers)
        lookups = _count_by_prefix(self._new)
        remaining = np.full(setup.sources, interval_s * rate)
        going = np.arange(setup.sources)
        while going.size:
            keys = self.keys[going]
            sent = np.minimum(self._left[going], remaining[going])
            packets += np.bincount(keys >> (KEY_BITS - PREFIX_BITS), sent, 1 << PREFIX_BITS)
            whole += np.bincount(self._server[keys], sent, setup.servers)
            self._left[going] -= sent
            remaining[going] -= sent
            going = going[remaining[going] > 0]
            self.keys[going] = draw_keys(self._upto[workload], going.size, self._rng)
            self._left[going] = self._rng.exponential(setup.stream_packets, going.size)
            lookups += _count_by_prefix(self.keys[going])
        self._new = self._renew_queries(workload)
        return Interval(packets / interval_s, lookups, _count_by_prefix(self._queries), whole / interval_s)

    def redirect(self, groups: Sequence[KeyGroup]) -> None:
        """Make the sources whose keys are in ``groups`` look up their servers again in the next interval.

        Call this for the key groups that have moved to other servers.
        """
        moved = [self.keys[(self.keys >= group.key) & (self.keys <= group.last)] for group in groups]
        self._new = np.concatenate([self._new, *moved])

    def _renew_queries(self, workload: str) -> NDArray[np.uint32]:
        over = self._rng.random(len(self._queries)) < -np.expm1(-self._setup.interval_s / QUERY_LIFE_S)
        self._queries[over] = fresh = draw_keys(self._upto[workload], int(over.sum()), self._rng)
        return fresh


def combine_intervals(intervals: Sequence[Interval]) -> Interval:
    """Combine consecutive intervals into one. Rates are averaged, and lookups are added up.

    The number of stored queries is the number in the last interval.
    """
    packets, whole = (np.mean([getattr(each, name) for each in intervals], 0) for name in ("packets", "by_whole_key"))
    lookups = np.sum([each.lookups for each in intervals], 0)
    return Interval(packets, lookups, intervals[-1].queries, whole)


def _count_by_prefix(keys: NDArray[np.uint32]) -> Ints:
    return np.bincount(keys >> (KEY_BITS - PREFIX_BITS), minlength=1 << PREFIX_BITS)


MAX_ROUNDS = 64


class MeasuredRates:
    """The packet rates of all key prefixes, as the product measures them.

    The product keeps two exponentially decaying means for each prefix: the current rate, with a short half-life, and
    the long-term rate, with a long one.
    """

    # Production's DeliveryRate computes both means for one prefix. Its results are proportional to the rates. Therefore
    # it is called only once, for a rate of 1, and the result is the factor for all prefixes.

    def __init__(self, interval_s: float) -> None:
        half_lives = HalfLives.for_interval(interval_s)
        self._remaining = DeliveryRate(1.0, 1.0).after(interval_s, half_lives)
        self._gained = DeliveryRate().with_measured(1.0, interval_s, half_lives)
        self._current, self._long_term = np.zeros(1 << PREFIX_BITS), np.zeros(1 << PREFIX_BITS)

    def measure(self, interval: Interval) -> tuple[Interval, Interval]:
        """Update the means with the rates in ``interval``; return a copy of ``interval`` for splits and one for merges.

        - In the copy for splits, the packet rate of each prefix is replaced with its mean with the short half-life.
        - In the copy for merges, it is replaced with the greater of the prefix's two means.
        """
        self._current = self._remaining.current * self._current + self._gained.current * interval.packets
        self._long_term = self._remaining.long_term * self._long_term + self._gained.long_term * interval.packets
        peak = np.maximum(self._current, self._long_term)
        return (
            msgspec.structs.replace(interval, packets=self._current),
            msgspec.structs.replace(interval, packets=peak),
        )


HOP_SAMPLES = 10_000
FINGERS = 32


class ChordMap:
    """Chord, the paper's map from hashes to servers: each server is at a random point on a circle.

    A server is responsible for the hashes between the preceding server's point and its own.
    """

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self.points = np.sort(rng.random(servers))

    def mean_hops(self, rng: np.random.Generator) -> float:
        """Return the mean number of messages needed to route a request in Chord.

        Each simulated request goes from a random server to the server that is responsible for a random hash.
        """
        # Each server knows its successor and, for k from 1 to 32, the server responsible for the point 2⁻ᵏ beyond its
        # own (its fingers). It forwards a request to the last of these before the hash, or to its successor if that is
        # responsible.
        count = len(self.points)
        distances = 0.5 ** np.arange(1, FINGERS + 1)
        fingers = np.searchsorted(self.points, (self.points[:, None] + distances) % 1) % count
        at, hashes = rng.integers(0, count, HOP_SAMPLES), rng.random(HOP_SAMPLES)
        owner, hops = np.searchsorted(self.points, hashes) % count, 0
        while (going := np.flatnonzero(at != owner)).size:
            hops += len(going)
            here = at[going]
            left = (hashes[going] - self.points[here]) % 1
            beyond = (self.points[fingers[here]] - self.points[here, None]) % 1
            usable = np.where(beyond < left[:, None], beyond, 0.0)
            best = usable.argmax(axis=1)
            forwarded = np.where(usable.max(axis=1) > 0, fingers[here, best], owner[going])
            at[going] = np.where((here + 1) % count == owner[going], owner[going], forwarded)
        return hops / HOP_SAMPLES

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the keyspace of a key group: the index of the server that is responsible for the group."""
        return int(np.searchsorted(self.points, hash_key(group) / 2**HASH_BITS) % len(self.points))


class PrefixSums:
    """Computes the total of a quantity for a group of keys, from its value for each prefix.

    A prefix is the first 16 bits of a key.
    """

    def __init__(self, values: Floats | Ints) -> None:
        self._upto = np.concatenate([[0.0], np.cumsum(values)])

    def total(self, group: KeyGroup) -> float:
        """Return the sum of the values of the prefixes in ``group``.

        Each prefix's value is assumed to be spread evenly over the keys with this prefix. A group smaller than a prefix
        therefore gets a part of the prefix's value.
        """
        hidden = KEY_BITS - PREFIX_BITS
        found = self._upto[(group.last >> hidden) + 1] - self._upto[group.key >> hidden]
        return float(found) / (1 << max(0, group.depth - PREFIX_BITS))


Measured = dict[Keyspace, dict[KeyGroup, float]]
ChooseStep = Callable[[Keyspace, Measured], move_steps.InitialStep | None]


class SimulatedServers:
    """All simulated servers and their tables of key groups. A key group is a set of keys with the same leading bits.

    ``tables[i]`` is the table of the server with index i. Each call of :meth:`split_overloaded` resets these
    attributes before it splits groups:

    - ``messages`` counts the messages between servers.
    - ``moved`` contains the key groups that have moved to another server.
    """

    def __init__(self, keyspaces: KeyspaceMap, count: int, limits: LoadLimits) -> None:
        root = keyspaces.keyspace_of(KeyGroup(0, 0, KEY_BITS))
        self.keyspaces, self.limits = keyspaces, limits
        self.tables = [empty_table(keyspace, KEY_BITS) for keyspace in range(count)]
        self.tables[root] = root_table(root, KEY_BITS)
        self.messages = 0.0
        self.moved: list[KeyGroup] = []
        self.splits = self.merges = 0

    def leaf_groups(self) -> Iterator[tuple[Keyspace, KeyGroup]]:
        """Yield (index of the server, group) for each group of keys that is not split further."""
        for table in self.tables:
            for group, entry in table.entries.items():
                if entry.state in LEAF_STATES:
                    yield table.keyspace, group

    def loads(self, interval: Interval) -> Measured:
        """Return the loads in ``interval``: a dict from server index to a dict from key group to load.

        Only groups that are not split further are included. Loads are in packets per second, like ``capacity``.
        """
        return self._loads(PrefixSums(interval.packets), PrefixSums(interval.queries))

    def _loads(self, packets: PrefixSums, queries: PrefixSums) -> Measured:
        found: Measured = {}
        for keyspace, group in self.leaf_groups():
            found.setdefault(keyspace, {})[group] = group_load(packets.total(group), queries.total(group))
        return found

    def split_overloaded(self, interval: Interval) -> None:
        """Split groups of keys until the traffic in ``interval`` overloads no server, or no group can be split.

        The attributes ``messages`` and ``moved`` are reset before the first split.
        """
        self.messages, self.moved = 0.0, []
        self._repeat_until_stable(
            interval, lambda keyspace, loads: choose_split(keyspace, loads[keyspace], self.limits)
        )

    def merge_underloaded(self, interval: Interval) -> None:
        """Merge the halves of split key groups until every further merge would cause too high a load.

        The loads are those that the traffic in ``interval`` causes.
        """
        self.messages += sum(len(sibling_pairs(table, self.tables, {})) for table in self.tables)
        self._repeat_until_stable(interval, self._merge_due)

    def _merge_due(self, keyspace: Keyspace, loads: Measured) -> move_steps.MergeGroup | None:
        pairs = sibling_pairs(self.tables[keyspace], self.tables, loads)
        return choose_merge(keyspace, loads[keyspace], pairs, self.limits)

    def _repeat_until_stable(self, interval: Interval, due: ChooseStep) -> None:
        packets, queries = PrefixSums(interval.packets), PrefixSums(interval.queries)
        loads = self._loads(packets, queries)
        for _ in range(MAX_ROUNDS):
            acted = False
            for keyspace in sorted(loads):
                step = due(keyspace, loads) if keyspace in loads else None
                if step is not None:
                    acted = True
                    self._execute_move(step, queries)
                    loads = self._loads(packets, queries)
            if not acted:
                return

    def _execute_move(self, first: move_steps.InitialStep, queries: PrefixSums) -> None:
        step: move_steps.Step | None = first
        self.splits += isinstance(first, move_steps.SplitGroup)
        self.merges += isinstance(first, move_steps.MergeGroup)
        while step is not None:
            outcome = self._execute_step(step)
            if isinstance(outcome, move_steps.MoveStarted) and outcome.move is not None:
                self.moved.append(outcome.move.group)
                self.messages += queries.total(outcome.move.group)
            step = next_step(step, outcome)

    def _execute_step(self, step: move_steps.Step) -> move_steps.Outcome:
        keyspace = move_steps.keyspace_of(step)
        table = self.tables[keyspace] = move_steps.apply(self.tables[keyspace], step, self.keyspaces)
        match step:
            case move_steps.SplitGroup() | move_steps.MergeGroup():
                return move_steps.MoveStarted(table.move)
            case move_steps.GiveKeyGroup():
                self.messages += 2
                return move_steps.GiveResult(is_giving(table, step.move))
            case move_steps.Fetch():
                self.tables[keyspace] = mark_emptied(table, step.move)
                return move_steps.FetchedRecords(())
            case move_steps.AcceptKeyGroup() | move_steps.Settle() | move_steps.Forget():
                self.messages += 2
        return move_steps.StepDone()
