"""The dynamic experiments (§III.C): caches fill with what is read, and so documents come near.

What caches hold depends on the references alone, so all runs on a graph see the same. They are filled first; then
each read is located, its file fetched and cached, and the update delivered before the next read. A server's own
files, cached or on its disk, need no location, and disks add the same to every way: neither is counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from service.location.protocol import Filtering
from service.simulate.location_graph import Ways
from service.simulate.location_net import Network
from service.simulate.location_overlay import Edges
from service.simulate.location_static import Index, shape
from service.simulate.location_tapestry import Found, Tapestry
from service.simulate.location_trace import Caches, Trace


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

    def __init__(self, used: Index | None, network: Network | None) -> None:
        self.used, self.network = used, network
        self.routing: list[float] = []
        self.distance: list[float] = []
        self.found = self.failed = self.file_bytes = self.query_bytes = 0

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
            filter_bytes=self.network.crossed_bytes if self.network else 0,
            pointer_bytes=pointer_bytes,
        )


def run(ways: Ways, trace: Trace, warm_up: int, rng: np.random.Generator, filters: Sequence[Filters]) -> list[Dynamic]:
    """Fill the caches with the first requests; measure the others by Tapestry alone, and with each of the filters."""
    latency_s, _, crossings = ways.as_lists()
    names = [f"file {number}" for number in range(len(trace.sizes))]
    caches = Caches(ways.servers, trace.sizes, trace.disks)
    for server, file in trace.requests[:warm_up]:
        caches.read(server, file)
    tapestry = Tapestry(ways, rng)
    for file, holders in enumerate(caches.holders):
        for holder in holders:
            tapestry.publish(holder, names[file])
    measured = [_Measured(None, None), *(_Measured(each.used, _filled(ways, each, caches, names)) for each in filters)]
    networks = [each.network for each in measured if each.network]
    pointers = 0
    for server, file in trace.requests[warm_up:]:
        holders = caches.holders[file]
        if server not in holders:
            nearest_s = min(latency_s[server][each] for each in holders)
            for way in measured:
                found = way.locate(server, names[file], holders, tapestry)
                way.routing.append(found.time_s / nearest_s)
                way.distance.append(latency_s[server][found.holder] / nearest_s)
                way.file_bytes += trace.sizes[file] * crossings[found.holder][server]
                way.query_bytes += found.crossed_bytes
        come, gone = ([names[each] for each in some] for some in caches.read(server, file) or ([], []))
        pointers += sum(tapestry.publish(server, each) for each in come)
        pointers += sum(tapestry.withdraw(server, each) for each in gone)
        for network in networks:
            network.change(server, come, gone)
            network.quiet()
    return [way.outcome(pointers) for way in measured]


def _filled(ways: Ways, filters: Filters, caches: Caches, names: list[str]) -> Network:
    network = Network(ways, filters.edges, shape(filters.used), Filtering.SOURCE)
    here: list[list[str]] = [[] for _ in range(ways.servers)]
    for file, holders in enumerate(caches.holders):
        for holder in holders:
            here[holder].append(names[file])
    for server, documents in enumerate(here):
        network.change(server, documents)
    network.quiet()
    network.crossed_bytes = network.messages = 0
    return network
