"""The dynamic experiments (§III.C): servers cache the documents that they read, so that copies are nearer to readers.

The *reference stream* is the sequence of all reads. All runs on the same network use the same stream, so the caches
have the same contents in each run. Documents are located, and reads are measured, only in three windows of the stream.
A read is not counted if the reading server itself has the file.

The stream is generated in the same way as by SURGE, a workload generator for the web:

- There are 570,000 requests for 50,000 files with Zipf popularity. Each file is permanently on the disk of one server.
- A cache holds 420 kB. If it is full, the least recently read files are evicted. Files larger than a cache are not
  cached.
- File sizes have a lognormal distribution with a Pareto tail.

Deviation from the paper: 0.2 % of the files are in the tail, instead of 7 % as in SURGE. The mean size is thus 21 kB,
as in the paper.
"""

# The windows begin after a sixth, a half and five sixths of the stream. In a window, each document that is read is
# located and cached, and the updates of filters are delivered before the next read. Between windows only caches change.
# At the beginning of a window, all filters and pointers are brought up to date.
#
# The least popular file is requested once, from which 570,000 requests follow. File sizes (SURGE: mu 9.357, sigma
# 1.318, a Pareto tail above 133 kB with alpha 1.1) are limited to 75 bytes to 8.69 MB. With 7 % of the files in the
# tail, the mean would be 69 kB, and a cache would hold 6 files instead of 20.
#
# Temporal locality is also that of SURGE. All files are in a stack, the most recently read first. For each request, a
# position in this stack is drawn from a lognormal distribution (mu 1.5, sigma 0.80). Of the five files around that
# position, one is chosen with a probability proportional to its remaining requests. The server that reads it is drawn
# at random.

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import NamedTuple

import msgspec
import numpy as np

from service.simulate.location.graph import ServerDistances
from service.simulate.location.network import SimulatedOverlay, TapestryMesh, TapestryResult
from service.simulate.location.static_experiment import FilterIndex

LEAST_BYTES, MOST_BYTES = 75, 8_690_000
TAIL_SHARE, TAIL_BYTES, TAIL_ALPHA = 0.002, 133_000, 1.1
MU, SIGMA = 9.357, 1.318
CACHE_BYTES = 420_000
STACK_MU, STACK_SIGMA, AROUND = 1.5, 0.80, 2


class ReferenceStream(NamedTuple):
    """A sequence of reads of files by servers, and the files that are read.

    - ``sizes`` contains the size of each file in bytes.
    - ``disks`` contains, for each file, the server that stores it permanently.
    - ``requests`` contains pairs (index of the reading server, index of the file), in chronological order.
    """

    sizes: list[int]
    disks: list[int]
    requests: list[tuple[int, int]]


def draw_reference_stream(servers: int, files: int, rng: np.random.Generator) -> ReferenceStream:
    """Draw the sizes of ``files`` files, the servers that store them on disk, and the requests for these files.

    ``servers`` is the number of servers to choose from.
    """
    body = np.exp(rng.normal(MU, SIGMA, 2 * files))
    body = body[body < TAIL_BYTES][:files]
    tail = TAIL_BYTES * (1 - rng.random(files)) ** (-1 / TAIL_ALPHA)
    sizes = np.clip(np.where(rng.random(files) < TAIL_SHARE, tail, body), LEAST_BYTES, MOST_BYTES).astype(int)
    file_requests = _stream(files, rng)
    disks = rng.permutation(np.arange(files) % servers)
    return ReferenceStream(
        sizes.tolist(),
        disks.tolist(),
        list(zip(rng.integers(0, servers, len(file_requests)).tolist(), file_requests, strict=True)),
    )


def _stream(files: int, rng: np.random.Generator) -> list[int]:
    expected = files / np.arange(1, files + 1)
    left: list[int] = (np.floor(expected) + (rng.random(files) < expected % 1)).astype(int).tolist()
    stack: list[int] = rng.permutation(files).tolist()
    stream: list[int] = []
    for draw, share in zip(
        rng.normal(STACK_MU, STACK_SIGMA, sum(left)).tolist(), rng.random(sum(left)).tolist(), strict=True
    ):
        deepest = min(int(exp(draw)) + AROUND, len(stack) - 1)
        highest = max(0, deepest - 2 * AROUND)
        around = [left[stack[-1 - place]] for place in range(highest, deepest + 1)]
        chosen = highest + bisect_right(list(accumulate(around)), share * sum(around))
        file = stack.pop(-1 - min(chosen, deepest))
        left[file] -= 1
        stream.append(file)
        if left[file]:
            stack.append(file)
    return stream


class ServerCaches:
    """The caches and disks of all servers.

    ``holders`` contains, for each file, the servers that have it on disk or in their cache.
    """

    def __init__(self, servers: int, sizes: Sequence[int], disks: Sequence[int]) -> None:
        """Create empty caches.

        ``sizes`` contains each file's size in bytes. ``disks`` contains, for each file, the server that stores it
        permanently.
        """
        self.holders = [{disk} for disk in disks]
        self._sizes = sizes
        self._cached: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(servers)]
        self._free = [CACHE_BYTES] * servers

    def read(self, server: int, file: int) -> tuple[list[int], list[int]]:
        """Make a server read a file; return (files added to the server's cache, files evicted from it)."""
        cached, size = self._cached[server], self._sizes[file]
        if file in cached:
            cached.move_to_end(file)
        if server in self.holders[file] or size > CACHE_BYTES:
            return [], []
        evicted: list[int] = []
        while self._free[server] < size:
            old, _ = cached.popitem(last=False)
            self._free[server] += self._sizes[old]
            self.holders[old].discard(server)
            evicted.append(old)
        cached[file] = None
        self._free[server] -= size
        self.holders[file].add(server)
        return [file], evicted


WINDOWS = 3
"""Number of parts of the reference stream, the sequence of reads, in which reads are measured."""


class DynamicResult(msgspec.Struct, frozen=True):
    """The results of one run. The measured reads are those of files that the reading server does not have itself.

    - ``index`` contains the parameters of the filters; None means that only Tapestry, a routing network, was used.
    - ``reads`` is the number of measured reads.
    - ``routing_stretch`` is the time that a query takes, divided by the latency to the nearest server with the file
      (mean over all measured reads).
    - ``distance_stretch`` is the latency to the server that the query finds, divided by the latency to the nearest
      server with the file (mean over all measured reads).
    - ``found`` is the fraction of reads for which filters found a server with the file.
    - ``failed`` is the fraction of reads for which filters forwarded the query, but did not find a server with the
      file.
    - ``file_bytes``, ``query_bytes``, ``filter_bytes`` and ``pointer_bytes`` are the bytes of messages with files,
      queries, filter updates and Tapestry's pointers.

    Bytes are counted once for each edge between domains that a message crosses.
    """

    index: FilterIndex | None
    reads: int
    routing_stretch: float
    distance_stretch: float
    found: float
    failed: float
    file_bytes: int
    query_bytes: int
    filter_bytes: int
    pointer_bytes: int

    @property
    def crossed_bytes(self) -> int:
        """The total bytes of all messages, counted once for each edge between domains that a message crosses."""
        return self.file_bytes + self.query_bytes + self.filter_bytes + self.pointer_bytes


class _MethodMeasurements:
    """The measurements of one method of locating files.

    The method uses the filters in ``network``, or no filters if ``network`` is None.
    """

    def __init__(self, index: FilterIndex | None = None, network: SimulatedOverlay | None = None) -> None:
        self.index, self.network = index, network
        self.routing: list[float] = []
        self.distance: list[float] = []
        self.found = self.failed = self.file_bytes = self.query_bytes = self.filter_bytes = 0

    def locate(self, server: int, document: str, holders: set[int], tapestry: TapestryMesh) -> TapestryResult:
        if self.network is None:
            return tapestry.locate(server, document)
        walk = self.network.walk(server, document, holders)
        self.found += walk.found
        self.failed += walk.hops > 0 and not walk.found
        if walk.found:
            return TapestryResult(walk.at, walk.time_s, walk.crossed_bytes)
        located = tapestry.locate(walk.at, document)
        return TapestryResult(located.holder, walk.time_s + located.time_s, walk.crossed_bytes + located.crossed_bytes)

    def update(self, server: int, come: list[str], gone: list[str]) -> None:
        if self.network:
            before = self.network.crossed_bytes
            self.network.change_documents(server, come, gone)
            self.network.deliver_all()
            self.filter_bytes += self.network.crossed_bytes - before

    def outcome(self, pointer_bytes: int) -> DynamicResult:
        return DynamicResult(
            index=self.index,
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


def run(
    distances: ServerDistances,
    trace: ReferenceStream,
    reads: int,
    rng: np.random.Generator,
    filters: Sequence[tuple[FilterIndex, SimulatedOverlay]],
) -> list[DynamicResult]:
    """Simulate the same requests once without filters, and once with each element of ``filters``.

    Return the results of each run.

    - ``trace`` contains all requests for files.
    - ``reads`` is the number of requests to measure.
    - ``filters`` contains pairs (parameters of filters, network). The network's servers use filters with these
      parameters and have no documents yet.
    """
    # Without filters, Tapestry alone locates files.
    latency_s, _, crossings = distances.lists
    names = [f"file {number}" for number in range(len(trace.sizes))]
    caches = ServerCaches(distances.servers, trace.sizes, trace.disks)
    tapestry = TapestryMesh(distances, rng)
    measured = [_MethodMeasurements(), *(_MethodMeasurements(*each) for each in filters)]
    known: list[set[int]] = [set() for _ in range(distances.servers)]
    pointers, after = 0, 0
    for window in range(WINDOWS):
        begin = (2 * window + 1) * len(trace.requests) // (2 * WINDOWS)
        for server, file in trace.requests[after:begin]:
            caches.read(server, file)
        _update_filters(known, caches, names, tapestry, measured)
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
            come, gone = caches.read(server, file)
            known[server] = known[server].union(come).difference(gone)
            pointers += sum(tapestry.publish(server, names[each]) for each in come)
            pointers += sum(tapestry.withdraw(server, names[each]) for each in gone)
            for way in measured:
                way.update(server, [names[each] for each in come], [names[each] for each in gone])
    return [way.outcome(pointers) for way in measured]


def _update_filters(
    known: list[set[int]],
    caches: ServerCaches,
    names: list[str],
    tapestry: TapestryMesh,
    measured: list[_MethodMeasurements],
) -> None:
    """Update Tapestry (a routing network) and all filters to the current contents of all caches and disks.

    - ``known`` contains, for each server, the files that were announced before. It is updated to the current files.
    - ``names`` contains the document name of each file.
    - ``measured`` contains one element per method of locating files, with the network whose filters are updated.
    """
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
            network.change_documents(server, come, gone)
    for network in networks:
        network.deliver_all()
    known[:] = here
