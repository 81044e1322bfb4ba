"""A whole fleet in simulated time: what each node knows, decides and tells, hour after hour (Corona §3.3).

Every node is its own: it ticks at its own phase, hears what the wire brings it (``service.corona.aggregation``),
solves for the scale with what it knows by then (``owners``), and writes its channels' rotas down. The run begins empty:
owners alone poll (n = 1), and nobody has heard of anybody.

A node that dies is noticed when its lease ends; then, as on any change of the ring, each owner names its polling sets
anew, and who takes a channel over begins its rota anew, knowing only its own size of it.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from service.corona.aggregation import Aggregation
from service.corona.messages import Summary
from service.corona.policy import SILENT_INTERVALS
from service.model import NodeId
from service.overlay.ring import RingView
from service.simulate.nearest import Trie
from service.simulate.owners import Owners
from service.simulate.timetable import Rotas, Timetable
from service.simulate.trace import HOUR_S, Bools, Floats, Ints
from service.simulate.workload import Channels, Setup, first_nodes, new_id, node_info

TICKS_PER_MAINTENANCE = 4
"""As workers have it."""
LEASE_S = 6.0
"""How long a dead node stays on the ring: the default of workers."""
NOBODY = -1
A_BIT_EARLY = 1e-9
"""Of an interval: sums of ticks may round."""
MEDIAN_DELAY_S = 0.08
DELAY_SPREAD = 0.5
"""Of the logarithm of a message's delay: one in a hundred takes three times the median. Our choice, as of several
continents."""
DRAWN_AT_ONCE = 1 << 16


class Wire:
    """Delays and losses, drawn one after another."""

    def __init__(self, loss: float, rng: np.random.Generator) -> None:
        self._loss, self._rng = loss, rng
        self._drawn: list[float] = []

    def delay_s(self) -> float | None:
        """Return how long the next message takes; None if it is lost."""
        if not self._drawn:
            delays_s = MEDIAN_DELAY_S * np.exp(DELAY_SPREAD * self._rng.standard_normal(DRAWN_AT_ONCE))
            self._drawn = np.where(self._rng.random(DRAWN_AT_ONCE) < self._loss, np.nan, delays_s).tolist()
        drawn_s = self._drawn.pop()
        return drawn_s if drawn_s == drawn_s else None  # noqa: PLR0124 - NaN is a lost one


class Fleet:
    """All nodes of one run. The rotas of ``followed`` channels are written down; the others are decided alike."""

    def __init__(self, setup: Setup, channels: Channels, followed: Ints, rng: np.random.Generator) -> None:
        self.setup, self.channels, self._rng = setup, channels, rng
        self.owners = Owners(setup, channels)
        self.sizes: Floats = np.ones(setup.channels)
        """Every channel's n as its owner has decided it last."""
        self.tries: list[Trie] = []
        """Every ring there was."""
        self.numbers: list[Ints] = []
        """The numbers of each ring's nodes, in the order of their ids; no two nodes ever have the same, even if one
        takes the id of another that has died."""
        self.died_s: dict[int, float] = {}
        """When the nodes of which numbers died; they are on the ring for ``LEASE_S`` more."""
        self._dead: set[NodeId] = set()
        self._view = RingView(0, ())
        self._known: dict[NodeId, int] = {}
        self._owner: Ints = np.full(setup.channels, NOBODY)
        self._wire = Wire(setup.loss, rng)
        self._rotas = Rotas(setup, channels, followed)
        self._nodes: dict[NodeId, Aggregation] = {}
        self._maintained_s: dict[int, float] = {}
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._orders, self._numbers = count(), count()

    @property
    def trie(self) -> Trie:
        """The present ring."""
        return self.tries[-1]

    def run(self) -> Timetable:
        """Let the whole time pass; return the rotas of the channels followed."""
        self._enter(first_nodes(self.setup, self._rng), 0.0)
        self._rotas.begin(self._rotas.followed, self.sizes, 0, len(self.trie.nodes), 0.0)
        for at_s, happening in self._churn():
            self._plan(at_s, happening)
        while self._agenda and self._agenda[0][0] < self.setup.end_s:
            now_s, _, happening = heappop(self._agenda)
            happening(now_s)
        return self._rotas.timetable(self.setup.channels)

    def _plan(self, at_s: float, happening: Callable[[float], None]) -> None:
        heappush(self._agenda, (at_s, next(self._orders), happening))

    def _tick(self, node: NodeId, number: int, now_s: float) -> None:
        if node in self._dead or self._known.get(node) != number:
            return
        self._plan_tick(node, number, now_s + self.setup.maintenance_s / TICKS_PER_MAINTENANCE)
        due_s = self._maintained_s.get(number, -np.inf) + self.setup.maintenance_s * (1 - A_BIT_EARLY)
        if now_s >= due_s:
            self._maintained_s[number] = now_s
            self._maintain(node, now_s)
        for send in self._nodes[node].tick(now_s):
            delay_s = self._wire.delay_s()
            if delay_s is not None and isinstance(send.message, Summary):
                self._plan_arrival(node, send.node, send.message, now_s + delay_s)

    def _plan_tick(self, node: NodeId, number: int, at_s: float) -> None:
        self._plan(at_s, lambda now_s: self._tick(node, number, now_s))

    def _plan_arrival(self, sender: NodeId, receiver: NodeId, summary: Summary, at_s: float) -> None:
        def arrives(now_s: float) -> None:
            if receiver in self._nodes and receiver not in self._dead:
                self._nodes[receiver].heard(sender, summary, now_s)

        self._plan(at_s, arrives)

    def _maintain(self, node: NodeId, now_s: float) -> None:
        """Decide anew how often each of the node's channels is polled."""
        owned = np.flatnonzero(self._owner == self._known[node])
        self.sizes[owned] = self.owners.sizes(owned, self._nodes[node].fleet(), self.trie)
        self._nodes[node].own = self.owners.part(owned, self.trie)
        self._rotas.change(owned, self.sizes, len(self.tries) - 1, len(self.trie.nodes), now_s)

    def _churn(self) -> list[tuple[float, Callable[[float], None]]]:
        """Return when nodes die and join: as many of the one as of the other, at any time."""
        expected = self.setup.churn * self.setup.nodes * self.setup.end_s / HOUR_S
        times_s = (self._rng.random(int(self._rng.poisson(expected))) * self.setup.end_s for _ in range(2))
        dying, joining = (drawn.tolist() for drawn in times_s)
        return [*((at_s, self._die) for at_s in dying), *((at_s, self._join) for at_s in joining)]

    def _die(self, now_s: float) -> None:
        alive = [node for node in self.trie.nodes if node not in self._dead]
        node = alive[int(self._rng.integers(len(alive)))]
        self._dead.add(node)
        self.died_s[self._known[node]] = now_s
        self._plan(now_s + LEASE_S, lambda at_s: self._leave(node, at_s))

    def _leave(self, node: NodeId, now_s: float) -> None:
        del self._nodes[node], self._known[node]
        self._dead.remove(node)
        self._enter(tuple(other for other in self.trie.nodes if other != node), now_s)

    def _join(self, now_s: float) -> None:
        self._enter((*self.trie.nodes, new_id(self.setup.ids, list(self.trie.nodes), self._rng)), now_s)

    def _enter(self, nodes: Sequence[NodeId], now_s: float) -> None:
        """Let everybody know the ring of these nodes: channels change hands, and polling sets their members."""
        self._view = RingView(self._view.version + 1, tuple(map(node_info, nodes)))
        self.tries.append(Trie(nodes))
        for node in nodes:
            if node not in self._nodes:
                number = self._known[node] = next(self._numbers)
                self._nodes[node] = self.owners.aggregation(node, SILENT_INTERVALS * self.setup.maintenance_s)
                phase = float(self._rng.random())
                self._plan_tick(node, number, now_s + phase * self.setup.maintenance_s / TICKS_PER_MAINTENANCE)
            self._nodes[node].ring_changed(self._view)
        self._hand_over(now_s)

    def _hand_over(self, now_s: float) -> None:
        """Let owners take over what is theirs on the new ring, and name anew the sets that it has changed."""
        self.numbers.append(np.array([self._known[node] for node in self.trie.nodes], dtype=np.int64))
        owner = self.numbers[-1][self.trie.at_rank(self.channels.points, np.zeros_like(self._owner))]
        moved = owner != self._owner
        touched = set(np.unique(np.concatenate((owner[moved], self._owner[moved]))).tolist()) - {NOBODY}
        self._owner = owner
        for node in self.trie.nodes:
            if (number := self._known[node]) in touched:
                owned = np.flatnonzero(owner == number)
                self._nodes[node].own = self.owners.part(owned, self.trie)
                if len(self.tries) > 1:
                    taken = owned[moved[owned]]
                    self.sizes[taken] = self.owners.sizes(taken, self._nodes[node].fleet(), self.trie)
        if len(self.tries) > 1:
            ring, stayed = len(self.tries) - 1, self._rotas.followed[~moved[self._rotas.followed]]
            self._rotas.begin(np.flatnonzero(moved), self.sizes, ring, len(self.trie.nodes), now_s)
            self._rotas.change(stayed[self._concerned(stayed)], self.sizes, ring, len(self.trie.nodes), now_s)

    def _concerned(self, numbers: Ints) -> Bools:
        """Say which of these channels have another polling set than on the ring before."""
        before, after = self.tries[-2:]
        concerned = np.zeros(len(numbers), dtype=bool)
        for trie, other in ((before, after), (after, before)):
            for node in set(trie.nodes) - set(other.nodes):
                ranks = trie.rank_of(node, self.channels.points[numbers])
                concerned |= ranks < np.ceil(self.sizes[numbers])
        return concerned
