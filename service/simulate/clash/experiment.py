"""Experiment ``clash`` (CLASH §VI): 1,000 servers, 100,000 sources and three workloads, beside plain DHTs.

Production's are the tables and their transitions, the policy, the order of a move's steps, the load formula, the map,
the search and its memory. Measured loads are those between two checks, on the trees that were in force then.

*Lookups* (§V.C): a client enters the overlay by one server, always the same, which remembers depths for all its
clients, as a process of Coronet does for all its people. A few of these are followed, each with production's memory and
search. Of one leaf's lookups in one interval only the first can go wrong: the tree does not change in between.

*DHT(x)* (§VI.B): all keys have the same length, x bits, and never change it.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash.group_search import DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, Keyspaces
from service.clash.load_policy import LoadLimits, group_load
from service.clash.server_table import GroupState
from service.clash.transitions import accept_object
from service.simulate.clash.servers import (
    CHECK_S,
    KEY_BITS,
    LOOKS,
    PHASE_S,
    SEEN_BITS,
    Chord,
    Interval,
    MapKind,
    Servers,
    Setup,
    Sources,
    Sums,
    together,
)
from service.simulate.schedulers.publication_trace import Floats, Ints

LENGTHS = (2, 6, 12, 24)


class Loads(msgspec.Struct, frozen=True):
    """The servers that had any load between two checks, as shares of their capacity."""

    servers_used: int
    mean: float
    max: float


class Dht:
    """One fixed length. Of 24-bit keys each is a group of its own, and its server a random one instead of SHA-1's."""

    def __init__(self, bits: int, keyspaces: KeyspaceMap, servers: int, capacity: float) -> None:
        self.bits, self._servers, self.capacity = bits, servers, capacity
        groups = 0 if bits > SEEN_BITS else 1 << bits
        places = [KeyGroup(place << (KEY_BITS - bits), bits, KEY_BITS) for place in range(groups)]
        self._server = np.array([keyspaces.keyspace_of(group) for group in places], np.int64)

    def loads(self, interval: Interval) -> Loads:
        """Return what its servers carried; queries weigh as with CLASH, but are not followed for DHT(24)."""
        if not self._server.size:
            return used_of(interval.by_whole_key / self.capacity)
        packets = np.bincount(self._server, self._grouped(interval.packets), self._servers)
        queries = np.bincount(self._server, self._grouped(interval.queries.astype(np.float64)), self._servers)
        loads = [group_load(deliveries, held) for deliveries, held in zip(packets, queries, strict=True)]
        return used_of(np.array(loads) / self.capacity)

    def _grouped(self, values: Floats) -> Floats:
        return np.asarray(values.reshape(1 << self.bits, -1).sum(axis=1))


def used_of(shares: Floats) -> Loads:
    """Return the figures of those servers that carry anything."""
    used = shares[shares > 0]
    return Loads(len(used), float(used.mean()), float(used.max()))


def random_servers(servers: int, points: Floats | None, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Return a server for each key of 24 bits, shape (2²⁴,): evenly, or by Chord's points."""
    if points is None:
        return rng.integers(0, servers, 1 << KEY_BITS, np.uint16)
    return (np.searchsorted(points, rng.random(1 << KEY_BITS)) % servers).astype(np.uint16)


FOLLOWED = 20
WITHOUT_MEMORY = 50
"""So many lookups of each interval are also done without one."""


class Lookups:
    """The lookups of all clients of so many entry servers."""

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self._servers, self._rng = servers, rng
        self._known = [DepthCache() for _ in range(FOLLOWED)]

    def probes(self, lookups: Ints, servers: Servers) -> tuple[float, float]:
        """Return the mean number of probes per lookup, and what it is without memory."""
        return self._with_memory(Sums(lookups), servers), self._without(lookups, servers)

    def _with_memory(self, lookups: Sums, servers: Servers) -> float:
        leaves = [(leaf, _leads_to(servers, keyspace, leaf)) for keyspace, leaf in servers.leaves()]
        expected = np.array([lookups.of(leaf) for leaf, _ in leaves]) / self._servers
        asked = probes = 0
        for depths in self._known:
            counts = self._rng.poisson(expected)
            asked += int(counts.sum())
            probes += int(counts.sum())
            for place in np.flatnonzero(counts):
                leaf, depth = leaves[place]
                key = int(self._rng.integers(leaf.key, leaf.last, endpoint=True))
                # The depth being right, the first question goes to the leaf's server, and is the last.
                if depths.depth(key) != depth:
                    probes += _searched(servers, key, depths.depth(key), depths) - 1
                depths.record(leaf, depth)
        return probes / asked if asked else 1.0

    def _without(self, lookups: Ints, servers: Servers) -> float:
        seen = self._rng.choice(len(lookups), WITHOUT_MEMORY, p=lookups / lookups.sum())
        keys = seen << (KEY_BITS - SEEN_BITS)
        return float(np.mean([_searched(servers, int(key), None, DepthCache()) for key in keys]))


def _leads_to(servers: Servers, keyspace: Keyspace, leaf: KeyGroup) -> int:
    return leaf.depth - (servers.table(keyspace).state(leaf) is GroupState.RECALLED)


def _searched(servers: Servers, key: int, hint: int | None, depths: DepthCache) -> int:
    search = DepthSearch(key, KEY_BITS, servers.keyspaces, hint)
    while (found := search.on_answer(accept_object(servers.table(search.probe.keyspace), key))) is None:
        pass
    depths.record(found.group, search.depth)
    return search.probes


WORKLOADS = ("A", "B", "C")
CHECKS = round(PHASE_S / CHECK_S)
TRANSIENT = 6
"""So many checks, half an hour, after a change of workload are in the plot, but not in the figures."""
STEPS = len(WORKLOADS) * CHECKS

NOT_MORE = 0.90
"""The share of its capacity that a server is to carry at most."""


class Check(msgspec.Struct, frozen=True):
    """What was found at one check; ``messages`` are those of all servers since the last one."""

    at_s: float
    loads: Loads
    busiest_look: float
    """The load of the busiest server in its busiest minute."""
    coarsest_mean: float
    """The mean load of a tree of the largest groups that are below 90 %: with less servers there is no binary tree."""
    depth_min: int
    depth_mean: float
    depth_max: int
    lookups: int
    probes: float
    probes_without_memory: float
    messages: float
    dht: tuple[Loads, ...]


class Look(msgspec.Struct, frozen=True):
    """What was found at one look."""

    loads: Mapping[Keyspace, float]
    depths: Sequence[int]
    messages: float


class DhtFigures(msgspec.Struct, frozen=True):
    """Of one DHT(``bits``); its depth is always ``bits``, and a lookup one probe."""

    bits: int
    servers_used: float
    mean_load: float
    max_load_after_transient: float
    depth_min: int
    depth_mean: float
    depth_max: int
    lookup_probes_mean: float
    messages_per_server_s: float


class Figures(msgspec.Struct, frozen=True):
    """Of one workload after its transient; loads are shares of a server's capacity, means are over its checks."""

    workload: str
    servers_used: float
    mean_load: float
    mean_load_possible: float
    max_load_after_transient: float
    max_load_in_a_minute: float
    overloaded_checks: int
    """At which any server was above 90 %."""
    depth_min: int
    depth_mean: float
    depth_max: int
    lookup_probes_mean: float
    lookup_probes_without_memory: float
    messages_per_server_s: float
    """Over all servers, used or not."""
    messages_per_used_server_s: float
    share_of_dht_12: float
    """Servers used, as a share of DHT(12)'s."""
    dht: tuple[DhtFigures, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What ``coronet simulate clash --json`` prints."""

    experiment: str
    seed: int
    setup: Setup
    workloads: tuple[Figures, ...]
    splits: int
    merges: int
    recalls: int
    checks: tuple[Check, ...]


def run(setup: Setup, seed: int, report: Callable[[str], None]) -> Outcome:
    """Run all three workloads, one after another; report after each check."""
    rng, map_rng, lookup_rng = np.random.default_rng(seed).spawn(3)
    chord = Chord(setup.servers, map_rng)
    keyspaces = Keyspaces(setup.servers) if setup.map is MapKind.EVEN else chord
    points = None if setup.map is MapKind.EVEN else chord.points
    sources = Sources(setup, random_servers(setup.servers, points, map_rng), rng)
    servers = Servers(keyspaces, setup.servers, LoadLimits(setup.capacity_packets_s, setup.overload, setup.merged))
    lookups = Lookups(setup.servers, lookup_rng)
    dhts = [Dht(bits, keyspaces, setup.servers, setup.capacity_packets_s) for bits in LENGTHS]
    checks: list[Check] = []
    for workload in WORKLOADS:
        for _ in range(CHECKS):
            intervals, looks = [], []
            for _ in range(LOOKS - 1):
                intervals.append(sources.run(workload))
                looks.append(_looked(servers, intervals[-1]))
                servers.look(intervals[-1])
                sources.redirect(servers.moved)
            intervals.append(sources.run(workload))
            looks.append(_looked(servers, intervals[-1]))
            whole = together(intervals)
            probes = lookups.probes(whole.lookups, servers)
            servers.look(intervals[-1])
            servers.check(whole)
            sources.redirect(servers.moved)
            checks.append(_measured(looks, probes, dhts, whole, (len(checks) + 1) * CHECK_S))
            report(f"workload {workload}")
    figures = [
        _figures(workload, setup, checks[place * CHECKS + TRANSIENT : (place + 1) * CHECKS])
        for place, workload in enumerate(WORKLOADS)
    ]
    return Outcome("clash", seed, setup, tuple(figures), servers.splits, servers.merges, servers.recalls, tuple(checks))


def _looked(servers: Servers, interval: Interval) -> Look:
    loads = {
        keyspace: sum(leaves.values()) / servers.limits.capacity for keyspace, leaves in servers.loads(interval).items()
    }
    return Look(loads, [group.depth for _, group in servers.leaves()], servers.messages)


def _measured(
    looks: Sequence[Look],
    probes: tuple[float, float],
    dhts: Sequence[Dht],
    interval: Interval,
    at_s: float,
) -> Check:
    seen = {keyspace for look in looks for keyspace in look.loads}
    loads = np.array([mean(look.loads.get(keyspace, 0.0) for look in looks) for keyspace in sorted(seen)])
    lookups = int(interval.lookups.sum())
    with_memory, without = probes
    return Check(
        at_s,
        used_of(loads),
        max(max(look.loads.values()) for look in looks),
        float(loads.sum()) / _coarsest(interval, NOT_MORE * dhts[0].capacity),
        min(min(look.depths) for look in looks),
        mean(mean(look.depths) for look in looks),
        max(max(look.depths) for look in looks),
        lookups,
        with_memory,
        without,
        2 * with_memory * lookups + sum(look.messages for look in looks),
        tuple(dht.loads(interval) for dht in dhts),
    )


def _coarsest(interval: Interval, most: float) -> int:
    """Return how many groups of at most this load it takes at least to hold everything that has a load."""
    packets, queries = Sums(interval.packets), Sums(interval.queries)

    def needed(group: KeyGroup) -> int:
        load = group_load(packets.of(group), queries.of(group))
        if load <= most or group.depth == SEEN_BITS:
            return int(load > 0)
        return needed(group.left) + needed(group.right)

    return needed(KeyGroup(0, 0, KEY_BITS))


def _figures(workload: str, setup: Setup, checks: Sequence[Check]) -> Figures:
    used = mean(check.loads.servers_used for check in checks)
    per_s = mean(check.messages for check in checks) / CHECK_S
    dhts = tuple(_dht_figures(bits, place, checks, setup) for place, bits in enumerate(LENGTHS))
    return Figures(
        workload=workload,
        servers_used=used,
        mean_load=mean(check.loads.mean for check in checks),
        mean_load_possible=mean(check.coarsest_mean for check in checks),
        max_load_after_transient=max(check.loads.max for check in checks),
        max_load_in_a_minute=max(check.busiest_look for check in checks),
        overloaded_checks=sum(check.loads.max > NOT_MORE for check in checks),
        depth_min=min(check.depth_min for check in checks),
        depth_mean=mean(check.depth_mean for check in checks),
        depth_max=max(check.depth_max for check in checks),
        lookup_probes_mean=mean(check.probes for check in checks),
        lookup_probes_without_memory=mean(check.probes_without_memory for check in checks),
        messages_per_server_s=per_s / setup.servers,
        messages_per_used_server_s=per_s / used,
        share_of_dht_12=used / dhts[LENGTHS.index(12)].servers_used,
        dht=dhts,
    )


def _dht_figures(bits: int, place: int, checks: Sequence[Check], setup: Setup) -> DhtFigures:
    found = [check.dht[place] for check in checks]
    asked = mean(2 * check.lookups for check in checks)
    return DhtFigures(
        bits=bits,
        servers_used=mean(loads.servers_used for loads in found),
        mean_load=mean(loads.mean for loads in found),
        max_load_after_transient=max(loads.max for loads in found),
        depth_min=bits,
        depth_mean=bits,
        depth_max=bits,
        lookup_probes_mean=1.0,
        messages_per_server_s=asked / CHECK_S / setup.servers,
    )
