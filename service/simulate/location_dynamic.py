"""The dynamic experiments (§III.C): caches fill with what is read, and so documents come near.

What caches hold depends on the references alone, so all runs on a graph see the same. They are filled first; then
each read is located, its file fetched and cached, and the update delivered before the next read. A server's own
files, cached or on its disk, need no location, and disks add the same to every way: neither is counted.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from service.location.protocol import Filtering
from service.simulate.location_graph import Ways
from service.simulate.location_net import Network
from service.simulate.location_overlay import Edges
from service.simulate.location_static import Index, shape
from service.simulate.location_tapestry import Tapestry
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


def run(ways: Ways, trace: Trace, warm_up: int, rng: np.random.Generator, filters: Filters | None) -> Dynamic:
    """Fill the caches with the first requests, and measure the others."""
    latency_s, _, crossings = ways.as_lists()
    names = [f"file {number}" for number in range(len(trace.sizes))]
    caches = Caches(ways.servers, trace.sizes, trace.disks)
    for server, file in trace.requests[:warm_up]:
        caches.read(server, file)
    tapestry = Tapestry(ways, rng)
    for file, holders in enumerate(caches.holders):
        for holder in holders:
            tapestry.publish(holder, names[file])
    network = _filled(ways, filters, caches, names) if filters else None
    routing: list[float] = []
    distance: list[float] = []
    found = failed = files = queries = pointers = 0
    for server, file in trace.requests[warm_up:]:
        holders = caches.holders[file]
        if server not in holders:
            walk = network.walk(server, names[file], holders) if network else None
            time_s, holder = (walk.time_s, walk.at) if walk else (0.0, server)
            if walk:
                found += walk.found
                failed += walk.hops > 0 and not walk.found
                queries += walk.crossed_bytes
            if not walk or not walk.found:
                located = tapestry.locate(holder, names[file])
                time_s, holder = time_s + located.time_s, located.holder
                queries += located.crossed_bytes
            nearest_s = min(latency_s[server][each] for each in holders)
            routing.append(time_s / nearest_s)
            distance.append(latency_s[server][holder] / nearest_s)
            files += trace.sizes[file] * crossings[holder][server]
        changed = caches.read(server, file)
        if changed:
            come, gone = ([names[each] for each in some] for some in changed)
            pointers += sum(tapestry.publish(server, each) for each in come)
            pointers += sum(tapestry.withdraw(server, each) for each in gone)
            if network:
                network.change(server, come, gone)
                network.quiet()
    return Dynamic(
        index=filters.used if filters else None,
        reads=len(routing),
        routing_stretch=float(np.mean(routing)),
        distance_stretch=float(np.mean(distance)),
        found=found / len(routing),
        failed=failed / len(routing),
        file_bytes=files,
        query_bytes=queries,
        filter_bytes=network.crossed_bytes if network else 0,
        pointer_bytes=pointers,
    )


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
