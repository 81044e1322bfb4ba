"""One run of the experiment ``clash``: 1,000 servers, 100,000 sources and three workloads, compared with plain DHTs.

CLASH divides all keys into groups, and splits and merges these groups as their load changes. A plain DHT has no such
groups. In the plain DHT called DHT(x), all keys have a fixed length of x bits (§VI.B).

Every five minutes (``CHECK_S``), the servers check whether groups can be merged. The loads since the previous check are
recorded at the same time.

The experiment uses this production code:

- the servers' tables of key groups, and the map from keys to servers
- the formula for a group's load, and the policy that decides when to split and merge groups
- the search for the depth of a key's group (how many leading bits its keys share)
"""

# Lookups (§V.C): a client always uses the same entry server. It caches the depths of groups for all its clients, as a
# process of Coronet does for its users. Only a sample of the entry servers is simulated, with production's cache and
# search. The groups do not change within an interval. Therefore only the first of an entry server's lookups in a group
# can miss the cache in this interval.

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash.group_search import DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, Keyspaces
from service.clash.split_merge_policy import group_load
from service.clash.table_transitions import accept_object
from service.simulate.clash.servers import (
    CHECK_S,
    KEY_BITS,
    PHASE_S,
    PREFIX_BITS,
    ChordMap,
    ClashSetup,
    Interval,
    MapKind,
    MeasuredRates,
    PrefixSums,
    SimulatedServers,
    TrafficSources,
    combine_intervals,
)
from service.simulate.numerics import Floats, Ints

LENGTHS = (2, 6, 12, 24)


class Loads(msgspec.Struct, frozen=True):
    """The loads of the used servers (those with a load above 0) during the period before a measurement.

    - ``servers_used`` is the number of used servers.
    - ``mean`` and ``max`` are the mean and the maximum of their loads, as fractions of a server's capacity.
    """

    servers_used: int
    mean: float
    max: float


class FixedLengthDht:
    """A plain distributed hash table in which all keys are ``bits`` bits long. The paper calls it DHT(``bits``).

    With 24 bits, each key's server is drawn at random, because computing SHA-1 for so many keys would take too long.
    """

    def __init__(self, bits: int, keyspaces: KeyspaceMap, servers: int, capacity: float) -> None:
        self.bits, self._servers, self.capacity = bits, servers, capacity
        groups = 0 if bits > PREFIX_BITS else 1 << bits
        places = [KeyGroup(place << (KEY_BITS - bits), bits, KEY_BITS) for place in range(groups)]
        self._server = np.array([keyspaces.keyspace_of(group) for group in places], np.int64)

    def loads(self, interval: Interval) -> Loads:
        """Return the loads of the DHT's servers that result from the traffic in ``interval``.

        Stored queries add to the load of the servers that hold them, except if keys have 24 bits.
        """
        if not self._server.size:
            return used_loads(interval.by_whole_key / self.capacity)
        packets = np.bincount(self._server, self._grouped(interval.packets), self._servers)
        queries = np.bincount(self._server, self._grouped(interval.queries.astype(np.float64)), self._servers)
        loads = [group_load(deliveries, held) for deliveries, held in zip(packets, queries, strict=True)]
        return used_loads(np.array(loads) / self.capacity)

    def _grouped(self, values: Floats) -> Floats:
        return np.asarray(values.reshape(1 << self.bits, -1).sum(axis=1))


def used_loads(shares: Floats) -> Loads:
    """Return the number of servers with a load above 0, and the mean and the maximum of these servers' loads.

    ``shares`` contains the load of every server as a fraction of its capacity.
    """
    used = shares[shares > 0]
    return Loads(len(used), float(used.mean()), float(used.max()))


def random_servers(servers: int, points: Floats | None, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Assign a random server to each key of 24 bits; return an array of server indices of shape (2²⁴,).

    If ``points`` is None, all servers are equally likely. Otherwise ``points`` contains each server's point on a circle
    of length 1, in ascending order. For each key, a random point on the circle is drawn, and the first server at or
    after this point gets the key, as in Chord.
    """
    if points is None:
        return rng.integers(0, servers, 1 << KEY_BITS, np.uint16)
    return (np.searchsorted(points, rng.random(1 << KEY_BITS)) % servers).astype(np.uint16)


SAMPLED_ENTRY_SERVERS = 20
UNCACHED_LOOKUPS = 50
"""For this many lookups per load check, requests are also counted as if clients did not cache the depths of groups."""


class LookupClients:
    """Simulated clients that look up which server is responsible for a key.

    Each client sends all its lookups to one entry server, which caches what it learns about key groups. Only a sample
    of the entry servers is simulated.
    """

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self._servers, self._rng = servers, rng
        self._known = [DepthCache() for _ in range(SAMPLED_ENTRY_SERVERS)]

    def count_probes(self, lookups: Ints, servers: SimulatedServers) -> tuple[float, float]:
        """Return the mean number of probes per lookup, as a pair (with a cache, without a cache).

        A lookup finds the server that is responsible for a key. For this, the client needs the depth of the key's
        group, which is the number of leading bits that all keys of the group share. The client guesses the depth. It
        asks one server per guess; each such request is a probe.

        ``lookups`` contains the number of lookups for each key prefix of 16 bits.
        """
        return self._count_cached(PrefixSums(lookups), servers), self._count_uncached(lookups, servers)

    def _count_cached(self, lookups: PrefixSums, servers: SimulatedServers) -> float:
        leaves = [leaf for _, leaf in servers.leaf_groups()]
        expected = np.array([lookups.total(leaf) for leaf in leaves]) / self._servers
        lookup_count = probes = 0
        for depths in self._known:
            counts = self._rng.poisson(expected)
            lookup_count += int(counts.sum())
            probes += int(counts.sum())
            for place in np.flatnonzero(counts):
                leaf = leaves[place]
                key = int(self._rng.integers(leaf.key, leaf.last, endpoint=True))
                # With the right depth, the first probe reaches the leaf's server.
                if depths.depth(key) != leaf.depth:
                    probes += _count_probes(servers, key, depths) - 1
                depths.record(leaf)
        return probes / lookup_count if lookup_count else 1.0

    def _count_uncached(self, lookups: Ints, servers: SimulatedServers) -> float:
        seen = self._rng.choice(len(lookups), UNCACHED_LOOKUPS, p=lookups / lookups.sum())
        keys = seen << (KEY_BITS - PREFIX_BITS)
        return float(np.mean([_count_probes(servers, int(key), DepthCache()) for key in keys]))


def _count_probes(servers: SimulatedServers, key: int, depths: DepthCache) -> int:
    search = DepthSearch(key, KEY_BITS, servers.keyspaces, depths)
    while search.on_answer(accept_object(servers.tables[search.probe.keyspace], key)) is None:
        pass
    return search.probes


WORKLOADS = ("A", "B", "C")
CHECKS = round(PHASE_S / CHECK_S)
TRANSIENT = 6
"""The results leave out this many load checks (half an hour) after each change of workload. Plots include them."""
STEPS = len(WORKLOADS) * CHECKS

MAX_LOAD = 0.90
"""The load above which a server counts as overloaded, as a share of its capacity."""


class CheckMeasurements(msgspec.Struct, frozen=True):
    """The measurements of the five minutes that end at ``at_s``, a point in simulated time.

    - ``loads`` contains the loads of CLASH's servers.
    - ``dht`` contains the loads of each plain distributed hash table (DHT).
    - ``probes`` is the mean number of requests that a client needs to look up a key's server.
    - ``messages`` counts the requests and answers of lookups, and the messages between servers.
    """

    at_s: float
    loads: Loads
    busiest_look: float
    """The maximum load of any server in any interval between two checks for overload. The interval is a minute, or 10 s
    with the product's defaults."""
    coarsest_mean: float
    """The mean load of servers if the traffic were split into as few key groups as possible, each with a load of at
    most 90 % and on a server of its own."""
    depth_min: int
    depth_mean: float
    depth_max: int
    lookups: int
    probes: float
    probes_without_memory: float
    messages: float
    dht: tuple[Loads, ...]


class IntervalMeasurements(msgspec.Struct, frozen=True):
    """The measurements of one interval between two checks for overload.

    - ``loads`` maps each server to its load, as a fraction of its capacity.
    - ``depths`` contains, for each key group that is not split further, how many leading bits the group's keys share.
    - ``messages`` is the number of messages that servers exchanged for splits and merges just before the interval.
    """

    loads: Mapping[Keyspace, float]
    depths: Sequence[int]
    messages: float


class LoadResults(msgspec.Struct, frozen=True):
    """The results of CLASH, or of a plain distributed hash table, for one workload.

    The first half hour of the workload is left out. Loads are fractions of a server's capacity. Mean values are
    averages over all load measurements, which are five minutes apart.
    """

    servers_used: float
    mean_load: float
    max_load_after_transient: float
    depth_min: int
    depth_mean: float
    depth_max: int
    lookup_probes_mean: float
    messages_per_server_s: float
    """The number of messages per second, divided by the number of all servers, used or not."""
    messages_by_chord_per_server_s: float
    """The same as ``messages_per_server_s``, but the network Chord routes the requests of lookups. Each request then
    takes ``chord_hops`` messages instead of one."""


class DhtResults(LoadResults, frozen=True):
    """The results of a plain distributed hash table whose keys all have ``bits`` bits.

    Because the length is fixed, a client always finds a key's server with a single request.
    """

    bits: int


class WorkloadResults(LoadResults, frozen=True):
    """The results of CLASH for one workload, and those of the plain DHTs for the same workload."""

    workload: str
    mean_load_possible: float
    share_of_possible: float
    """``mean_load`` divided by ``mean_load_possible``, the mean load if the traffic were split into as few key groups
    as possible."""
    max_load_in_a_minute: float
    overloaded_checks: int
    """The number of load checks at which the load of some server was above 90 %."""
    lookup_probes_without_memory: float
    messages_by_chord_without_cache_per_server_s: float
    """The same as ``messages_by_chord_per_server_s``, but clients do not cache the depths of key groups."""
    messages_per_used_server_s: float
    share_of_dht_12: float
    """The number of servers that CLASH uses, divided by the number that DHT(12) uses."""
    dht: tuple[DhtResults, ...]


class ClashOutcome(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate clash --json``.

    ``chord_hops`` is the mean number of messages needed to route one request if the servers formed a Chord network.
    """

    experiment: str
    seed: int
    setup: ClashSetup
    chord_hops: float
    workloads: tuple[WorkloadResults, ...]
    splits: int
    merges: int
    checks: tuple[CheckMeasurements, ...]


def run(setup: ClashSetup, seed: int, report: Callable[[str], None]) -> ClashOutcome:
    """Run the three workloads one after another, and return the results.

    ``report`` is called with the name of the workload every five simulated minutes.
    """
    rng, map_rng, lookup_rng, hop_rng = np.random.default_rng(seed).spawn(4)
    chord = ChordMap(setup.servers, map_rng)
    hops = chord.mean_hops(hop_rng)
    keyspaces = Keyspaces(setup.servers) if setup.map is MapKind.EVEN else chord
    points = None if setup.map is MapKind.EVEN else chord.points
    sources = TrafficSources(setup, random_servers(setup.servers, points, map_rng), rng)
    servers = SimulatedServers(keyspaces, setup.servers, setup.limits)
    rates = MeasuredRates(setup.interval_s) if setup.as_shipped else None
    lookups = LookupClients(setup.servers, lookup_rng)
    dhts = [FixedLengthDht(bits, keyspaces, setup.servers, setup.capacity_packets_s) for bits in LENGTHS]
    checks: list[CheckMeasurements] = []
    for workload in WORKLOADS:
        for _ in range(CHECKS):
            intervals, measured = [], []
            for number in range(1, setup.intervals_per_check + 1):
                intervals.append(sources.run(workload))
                measured.append(_measure_interval(servers, intervals[-1]))
                is_last = number == setup.intervals_per_check
                if is_last:
                    whole = combine_intervals(intervals)
                    probes = lookups.count_probes(whole.lookups, servers)
                if rates is not None:
                    current, peak = rates.measure(intervals[-1])
                    servers.split_overloaded(current)
                    servers.merge_underloaded(peak)
                else:
                    servers.split_overloaded(intervals[-1])
                    if is_last:
                        servers.merge_underloaded(whole)
                sources.redirect(servers.moved)
            checks.append(_measure_check(measured, probes, dhts, whole, (len(checks) + 1) * CHECK_S))
            report(f"workload {workload}")
    results = [
        _summarise(workload, setup, checks[place * CHECKS + TRANSIENT : (place + 1) * CHECKS], hops)
        for place, workload in enumerate(WORKLOADS)
    ]
    return ClashOutcome("clash", seed, setup, hops, tuple(results), servers.splits, servers.merges, tuple(checks))


def _measure_interval(servers: SimulatedServers, interval: Interval) -> IntervalMeasurements:
    loads = {
        keyspace: sum(leaves.values()) / servers.limits.capacity for keyspace, leaves in servers.loads(interval).items()
    }
    return IntervalMeasurements(loads, [group.depth for _, group in servers.leaf_groups()], servers.messages)


def _measure_check(
    measured: Sequence[IntervalMeasurements],
    probes: tuple[float, float],
    dhts: Sequence[FixedLengthDht],
    interval: Interval,
    at_s: float,
) -> CheckMeasurements:
    used = {keyspace for each in measured for keyspace in each.loads}
    loads = np.array([mean(each.loads.get(keyspace, 0.0) for each in measured) for keyspace in sorted(used)])
    lookups = int(interval.lookups.sum())
    with_memory, without = probes
    return CheckMeasurements(
        at_s,
        used_loads(loads),
        max(max(each.loads.values()) for each in measured),
        float(loads.sum()) / _min_group_count(interval, MAX_LOAD * dhts[0].capacity),
        min(min(each.depths) for each in measured),
        mean(mean(each.depths) for each in measured),
        max(max(each.depths) for each in measured),
        lookups,
        with_memory,
        without,
        2 * with_memory * lookups + sum(each.messages for each in measured),
        tuple(dht.loads(interval) for dht in dhts),
    )


def _min_group_count(interval: Interval, max_load: float) -> int:
    """Return the minimum number of key groups into which the traffic has to be split so that no group is overloaded.

    A key group is the set of all keys with the same leading bits. It is overloaded if its load is above ``max_load``.
    Groups without load are not counted. Groups whose keys share 16 bits are not split further.
    """
    packets, queries = PrefixSums(interval.packets), PrefixSums(interval.queries)

    def count(group: KeyGroup) -> int:
        load = group_load(packets.total(group), queries.total(group))
        if load <= max_load or group.depth == PREFIX_BITS:
            return int(load > 0)
        return count(group.left) + count(group.right)

    return count(KeyGroup(0, 0, KEY_BITS))


def _summarise(workload: str, setup: ClashSetup, checks: Sequence[CheckMeasurements], hops: float) -> WorkloadResults:
    used = mean(check.loads.servers_used for check in checks)
    per_s = mean(check.messages for check in checks) / CHECK_S
    lookups_s = mean(check.lookups for check in checks) / CHECK_S
    probes_s = mean(check.probes * check.lookups for check in checks) / CHECK_S
    uncached_s = mean(check.probes_without_memory for check in checks) * lookups_s
    dhts = tuple(_summarise_dht(bits, place, checks, setup, hops) for place, bits in enumerate(LENGTHS))
    return WorkloadResults(
        workload=workload,
        servers_used=used,
        mean_load=mean(check.loads.mean for check in checks),
        mean_load_possible=mean(check.coarsest_mean for check in checks),
        share_of_possible=mean(check.loads.mean / check.coarsest_mean for check in checks),
        max_load_after_transient=max(check.loads.max for check in checks),
        max_load_in_a_minute=max(check.busiest_look for check in checks),
        overloaded_checks=sum(check.loads.max > MAX_LOAD for check in checks),
        depth_min=min(check.depth_min for check in checks),
        depth_mean=mean(check.depth_mean for check in checks),
        depth_max=max(check.depth_max for check in checks),
        lookup_probes_mean=mean(check.probes for check in checks),
        lookup_probes_without_memory=mean(check.probes_without_memory for check in checks),
        messages_per_server_s=per_s / setup.servers,
        messages_by_chord_per_server_s=(per_s + (hops - 1) * probes_s) / setup.servers,
        messages_by_chord_without_cache_per_server_s=(per_s - 2 * probes_s + (hops + 1) * uncached_s) / setup.servers,
        messages_per_used_server_s=per_s / used,
        share_of_dht_12=used / dhts[LENGTHS.index(12)].servers_used,
        dht=dhts,
    )


def _summarise_dht(
    bits: int, place: int, checks: Sequence[CheckMeasurements], setup: ClashSetup, hops: float
) -> DhtResults:
    loads = [check.dht[place] for check in checks]
    lookups_s = mean(check.lookups for check in checks) / CHECK_S / setup.servers
    return DhtResults(
        bits=bits,
        servers_used=mean(each.servers_used for each in loads),
        mean_load=mean(each.mean for each in loads),
        max_load_after_transient=max(each.max for each in loads),
        depth_min=bits,
        depth_mean=bits,
        depth_max=bits,
        lookup_probes_mean=1.0,
        messages_per_server_s=2 * lookups_s,
        messages_by_chord_per_server_s=(hops + 1) * lookups_s,
    )
