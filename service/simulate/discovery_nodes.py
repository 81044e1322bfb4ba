"""Nodes of the experiment ``discovery``: where cells lie, and what rates nodes observe (§V.A).

We deviate: places come from a 64-bit mixing function instead of SHA-1, which would take a minute for each run.
"""

import numpy as np
from numpy.typing import NDArray

from service.discovery.head import WINDOW
from service.simulate.discovery_workload import NODES
from service.simulate.trace import Floats, Ints

Bools = NDArray[np.bool_]


def node_of(pair: Ints, partition: Ints, replica: Ints, salt: int) -> Ints:
    """Return the nodes that have these cells: each node has an equal part of the hashes."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(pair, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.asarray(partition, dtype=np.uint64) << np.uint64(20)
        mixed += np.asarray(replica, dtype=np.uint64) + np.uint64(salt << 40)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(32)) * np.uint64(NODES) >> np.uint64(32)).astype(np.int64)


class Windows:
    """When the last ``WINDOW`` messages came to each node."""

    def __init__(self) -> None:
        self._times = np.full(NODES * WINDOW, -np.inf)
        self._count = np.zeros(NODES, dtype=np.int64)

    def now_s(self, node: Ints, time_s: Floats) -> Floats:
        """Return the rates of nodes at some times, if no message came to them then."""
        oldest = self._times[node * WINDOW + self._count[node] % WINDOW]
        rates: Floats = WINDOW / np.maximum(time_s - oldest, 1e-9)
        return rates

    def rates_per_s(self, node: Ints, time_s: Floats) -> Floats:
        """Take in messages, not earlier than those before, in order of time; return the rate that each one sees.

        It is that of this message and the ``WINDOW`` - 1 before it, over the time since the one before those.
        """
        order = np.argsort(node.astype(np.uint16), kind="stable")  # of so narrow numbers it is a radix sort
        of, at = node[order], time_s[order]
        first = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, dtype=np.int64)
        sizes = np.diff(np.append(first, len(of)))
        nth = np.arange(len(of)) - np.repeat(first, sizes)
        slot = of * WINDOW + (self._count[of] + nth) % WINDOW
        before = self._times[slot]
        late = np.flatnonzero(nth >= WINDOW)
        before[late] = at[late - WINDOW]
        self._times[slot] = at
        self._count[of[first]] += sizes
        rates = np.empty(len(of))
        rates[order] = WINDOW / np.maximum(at - before, 1e-9)
        return rates
