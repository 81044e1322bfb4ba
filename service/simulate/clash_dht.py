"""DHT(x): what CLASH is compared with (§VI.B): all keys have the same length, x bits, and never change it."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash.groups import KeyGroup, Map
from service.clash.load import group_load
from service.simulate.clash_workload import KEY_BITS, SEEN_BITS, Interval
from service.simulate.trace import Floats

LENGTHS = (2, 6, 12, 24)


class Loads(msgspec.Struct, frozen=True):
    """The servers that had any load between two checks, as shares of their capacity."""

    servers_used: int
    mean: float
    max: float


class Dht:
    """One fixed length. Of 24-bit keys each is a group of its own, and its server a random one instead of SHA-1's."""

    def __init__(self, bits: int, keyspaces: Map, servers: int, capacity: float) -> None:
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
