"""The dynamic experiments (§III.C): caches fill with what is read, and so documents come near.

What caches hold depends on the references alone, so all runs on a graph see the same. The whole stream goes through
them. Reads are measured where it is a sixth, a half and five sixths over: each is located, its file fetched and cached,
and the update delivered before the next read; in between, only caches live, and filters and pointers catch up then.
A server's own files, cached or on its disk, need no location, and disks add the same to every way: neither is counted.

The reference stream is of SURGE's kind.

50,000 unique files with Zipf's popularity, the least of which is asked for once: 570,000 requests. Sizes are lognormal
(SURGE: mu 9.357, sigma 1.318) with a Pareto tail above 133 kB (alpha 1.1), from 75 bytes to 8.69 MB. Each is on the
disk of one server for ever. A cache has 420 kB, in LRU order; a larger file is not kept.

We deviate: the tail has 0.2 % of the files instead of SURGE's 7 %, which gives the paper's mean of 21 kB; with 7 % it
would be 69 kB, and a cache would have 6 files instead of 20.
How soon a file is asked for again is SURGE's, too: its place in a stack of all files, the last one asked for on top,
is lognormal (mu 1.5, sigma 0.80); of the five files around there one is taken, by how often each is still to come. The
stream is dealt out to the servers at random.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import NamedTuple

import msgspec
import numpy as np

from service.simulate.location.graph import Edges, Ways
from service.simulate.location.network import Found, Network, Tapestry, Updates
from service.simulate.location.static import Index, shape

LEAST_BYTES, MOST_BYTES = 75, 8_690_000
TAIL_SHARE, TAIL_BYTES, TAIL_ALPHA = 0.002, 133_000, 1.1
MU, SIGMA = 9.357, 1.318
CACHE_BYTES = 420_000
STACK_MU, STACK_SIGMA, AROUND = 1.5, 0.80, 2


class Trace(NamedTuple):
    """``requests`` are (server, file) in order; ``disks`` says on which server's disk a file is."""

    sizes: list[int]
    disks: list[int]
    requests: list[tuple[int, int]]


def trace(servers: int, files: int, rng: np.random.Generator) -> Trace:
    """Draw files, and requests for all of them."""
    body = np.exp(rng.normal(MU, SIGMA, 2 * files))
    body = body[body < TAIL_BYTES][:files]
    tail = TAIL_BYTES * (1 - rng.random(files)) ** (-1 / TAIL_ALPHA)
    sizes = np.clip(np.where(rng.random(files) < TAIL_SHARE, tail, body), LEAST_BYTES, MOST_BYTES).astype(int)
    asked = _stream(files, rng)
    disks = rng.permutation(np.arange(files) % servers)
    return Trace(
        sizes.tolist(), disks.tolist(), list(zip(rng.integers(0, servers, len(asked)).tolist(), asked, strict=True))
    )


def _stream(files: int, rng: np.random.Generator) -> list[int]:
    wanted = files / np.arange(1, files + 1)
    left: list[int] = (np.floor(wanted) + (rng.random(files) < wanted % 1)).astype(int).tolist()
    stack: list[int] = rng.permutation(files).tolist()
    stream: list[int] = []
    for draw, luck in zip(
        rng.normal(STACK_MU, STACK_SIGMA, sum(left)).tolist(), rng.random(sum(left)).tolist(), strict=True
    ):
        deepest = min(int(exp(draw)) + AROUND, len(stack) - 1)
        highest = max(0, deepest - 2 * AROUND)
        around = [left[stack[-1 - place]] for place in range(highest, deepest + 1)]
        chosen = highest + bisect_right(list(accumulate(around)), luck * sum(around))
        file = stack.pop(-1 - min(chosen, deepest))
        left[file] -= 1
        stream.append(file)
        if left[file]:
            stack.append(file)
    return stream


class Caches:
    """What all servers have: their caches, and their disks."""

    def __init__(self, servers: int, sizes: Sequence[int], disks: Sequence[int]) -> None:
        """Begin with empty caches."""
        self.holders = [{disk} for disk in disks]
        self._sizes = sizes
        self._cached: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(servers)]
        self._free = [CACHE_BYTES] * servers

    def read(self, server: int, file: int) -> tuple[list[int], list[int]] | None:
        """Return which files come to the server's cache and which go; None if the server has the file."""
        cached, size = self._cached[server], self._sizes[file]
        if server in self.holders[file]:
            if file in cached:
                cached.move_to_end(file)
            return None
        if size > CACHE_BYTES:
            return [], []
        gone: list[int] = []
        while self._free[server] < size:
            old, _ = cached.popitem(last=False)
            self._free[server] += self._sizes[old]
            self.holders[old].discard(server)
            gone.append(old)
        cached[file] = None
        self._free[server] -= size
        self.holders[file].add(server)
        return [file], gone


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
    latency_s, _, crossings = ways.lists
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
