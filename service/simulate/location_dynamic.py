"""The dynamic experiments (§III.C): caches fill with what is read, and so documents come near.

What caches hold depends on the references alone, so all runs on a graph see the same. The whole stream goes through
them. Reads are measured where it is a sixth, a half and five sixths over: each is located, its file fetched and cached,
and the update delivered before the next read; in between, only caches live, and filters and pointers catch up then.
A server's own files, cached or on its disk, need no location, and disks add the same to every way: neither is counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from service.simulate.location_graph import Ways
from service.simulate.location_net import Network
from service.simulate.location_overlay import Edges
from service.simulate.location_static import Index, shape
from service.simulate.location_tapestry import Found, Tapestry
from service.simulate.location_trace import Caches, Trace
from service.simulate.location_updates import Updates

WINDOWS = 3
"""So many times reads are measured."""


class Dynamic(msgspec.Struct, frozen=True):
    """One run; without an index it is Tapestry alone. Stretches are means over the reads that needed a location.

    Bytes are what went along interdomain edges, in all.
    """

    index: Index | None
    reads: int
    routing_stretch: float
    distance_stretch: float
    found: float
    failed: float
    file_bytes: int
    query_bytes: int
    filter_bytes: int
    pointer_bytes: int


class Filters(NamedTuple):
    """Where they lie, and what they are like."""

    edges: Edges
    used: Index


class _Measured:
    """What one way of locating came to so far."""

    def __init__(self, ways: Ways, filters: Filters | None) -> None:
        self.used = filters.used if filters else None
        self.network = Network(ways, filters.edges, shape(filters.used), Updates.PRODUCT_SOURCE) if filters else None
        self.routing: list[float] = []
        self.distance: list[float] = []
        self.found = self.failed = self.file_bytes = self.query_bytes = self.filter_bytes = 0

    def locate(self, server: int, document: str, holders: set[int], tapestry: Tapestry) -> Found:
        if self.network is None:
            return tapestry.locate(server, document)
        walk = self.network.walk(server, document, holders)
        self.found += walk.found
        self.failed += walk.hops > 0 and not walk.found
        if walk.found:
            return Found(walk.at, walk.time_s, walk.crossed_bytes)
        located = tapestry.locate(walk.at, document)
        return Found(located.holder, walk.time_s + located.time_s, walk.crossed_bytes + located.crossed_bytes)

    def update(self, server: int, come: list[str], gone: list[str]) -> None:
        if self.network:
            before = self.network.crossed_bytes
            self.network.change(server, come, gone)
            self.network.quiet()
            self.filter_bytes += self.network.crossed_bytes - before

    def outcome(self, pointer_bytes: int) -> Dynamic:
        return Dynamic(
            index=self.used,
            reads=len(self.routing),
            routing_stretch=float(np.mean(self.routing)),
            distance_stretch=float(np.mean(self.distance)),
            found=self.found / len(self.routing),
            failed=self.failed / len(self.routing),
            file_bytes=self.file_bytes,
            query_bytes=self.query_bytes,
            filter_bytes=self.filter_bytes,
            pointer_bytes=pointer_bytes,
        )


def run(ways: Ways, trace: Trace, reads: int, rng: np.random.Generator, filters: Sequence[Filters]) -> list[Dynamic]:
    """Measure so many requests of the stream by Tapestry alone, and with each of the filters."""
    latency_s, _, crossings = ways.as_lists()
    names = [f"file {number}" for number in range(len(trace.sizes))]
    caches = Caches(ways.servers, trace.sizes, trace.disks)
    tapestry = Tapestry(ways, rng)
    measured = [_Measured(ways, None), *(_Measured(ways, each) for each in filters)]
    known: list[set[int]] = [set() for _ in range(ways.servers)]
    pointers, after = 0, 0
    for window in range(WINDOWS):
        begin = (2 * window + 1) * len(trace.requests) // (2 * WINDOWS)
        for server, file in trace.requests[after:begin]:
            caches.read(server, file)
        _caught_up(known, caches, names, tapestry, measured)
        after = begin + reads // WINDOWS
        for server, file in trace.requests[begin:after]:
            holders = caches.holders[file]
            if server not in holders:
                nearest_s = min(latency_s[server][each] for each in holders)
                for way in measured:
                    found = way.locate(server, names[file], holders, tapestry)
                    way.routing.append(found.time_s / nearest_s)
                    way.distance.append(latency_s[server][found.holder] / nearest_s)
                    way.file_bytes += trace.sizes[file] * crossings[found.holder][server]
                    way.query_bytes += found.crossed_bytes
            come, gone = caches.read(server, file) or ([], [])
            known[server] = known[server].union(come).difference(gone)
            pointers += sum(tapestry.publish(server, names[each]) for each in come)
            pointers += sum(tapestry.withdraw(server, names[each]) for each in gone)
            for way in measured:
                way.update(server, [names[each] for each in come], [names[each] for each in gone])
    return [way.outcome(pointers) for way in measured]


def _caught_up(
    known: list[set[int]], caches: Caches, names: list[str], tapestry: Tapestry, measured: list[_Measured]
) -> None:
    """Tell everybody what has come and gone since it was known."""
    here: list[set[int]] = [set() for _ in known]
    for file, holders in enumerate(caches.holders):
        for holder in holders:
            here[holder].add(file)
    networks = [way.network for way in measured if way.network]
    for server, (before, now) in enumerate(zip(known, here, strict=True)):
        come, gone = ([names[file] for file in sorted(files)] for files in (now - before, before - now))
        for name in come:
            tapestry.publish(server, name)
        for name in gone:
            tapestry.withdraw(server, name)
        for network in networks:
            network.change(server, come, gone)
    for network in networks:
        network.quiet()
    known[:] = here
