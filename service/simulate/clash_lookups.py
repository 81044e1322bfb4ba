"""How many questions clients ask until they know a key's server (CLASH §V.C), with and without a memory.

A client enters the overlay by one server, always the same, which remembers depths for all its clients, as a process of
Coronet does for all its people. A few of these are followed, each with production's memory and search. Of one leaf's
lookups in one interval only the first can go wrong: the tree does not change in between.
"""

import numpy as np

from service.clash.groups import KeyGroup, Keyspace
from service.clash.search import Depths, DepthSearch
from service.clash.table import Standing
from service.clash.transitions import answer
from service.simulate.clash_servers import Servers, Sums
from service.simulate.clash_workload import KEY_BITS, SEEN_BITS
from service.simulate.trace import Ints

FOLLOWED = 20
WITHOUT_MEMORY = 50
"""So many lookups of each interval are also done without one."""


class Lookups:
    """The lookups of all clients of so many entry servers."""

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self._servers, self._rng = servers, rng
        self._known = [Depths() for _ in range(FOLLOWED)]

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
                depths.learn(leaf, depth)
        return probes / asked if asked else 1.0

    def _without(self, lookups: Ints, servers: Servers) -> float:
        seen = self._rng.choice(len(lookups), WITHOUT_MEMORY, p=lookups / lookups.sum())
        keys = seen << (KEY_BITS - SEEN_BITS)
        return float(np.mean([_searched(servers, int(key), None, Depths()) for key in keys]))


def _leads_to(servers: Servers, keyspace: Keyspace, leaf: KeyGroup) -> int:
    return leaf.depth - (servers.table(keyspace).standing(leaf) is Standing.RECALLED)


def _searched(servers: Servers, key: int, hint: int | None, depths: Depths) -> int:
    search = DepthSearch(key, KEY_BITS, servers.keyspaces, hint)
    while (found := search.answered(answer(servers.table(search.probe.keyspace), key))) is None:
        pass
    depths.learn(found.group, search.depth)
    return search.probes
