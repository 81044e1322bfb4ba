"""The world of CLASH §VI: workloads A, B and C, sources whose keys change, and clients with queries.

A key has 24 bits. Its first 8 are skewed, by the workload; the rest is uniform. The paper draws its skews as curves
(Figure 6) without numbers. What is known of them: A is nearly uniform, C the most skewed, and DHT(6)'s hottest server
has 25 times its capacity, and DHT(12) uses 450 to 800 servers. Ours: A is uniform; B and C fall off exponentially on
both sides of a peak, C's so steep that its hottest group of 6 bits carries half the traffic, which gives both numbers.
Real popularity is no smooth curve: each of the 256 values is up to 30 % (A: 10 %) more or less popular than that.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.clash.groups import KeyGroup
from service.simulate.trace import HOUR_S, MINUTE_S, Floats, Ints

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

    ``overload`` and ``merged`` are those of :class:`service.clash.policy.Limits`. A server's load wobbles by 1 % from
    minute to minute, far less than what fan-outs make of a keyspace's: so it is filled up to just below the limit,
    which costs one move in six and fills servers as well as the tree allows.
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
