"""The servers of CLASH §VI: production's tables, policy and moves, around measured loads.

A look or check takes no time here: what a server decides is carried through before the next interval. Each decides on
what it measured of its keys in the last one, and goes on until it is content.
"""

from collections.abc import Callable, Iterator

import numpy as np

from service.clash import steps
from service.clash.groups import HASH_BITS, KeyGroup, Keyspace, Map, hash_key
from service.clash.load import group_load
from service.clash.policy import Limits, lone_rights, merge_due, pairs, recall_due, split_due
from service.clash.steps import following
from service.clash.table import LEAVES, ServerTable, empty_table, root_table
from service.clash.transitions import emptied, given
from service.simulate.clash_workload import KEY_BITS, SEEN_BITS, Interval
from service.simulate.trace import Floats, Ints

MOST_ROUNDS = 64


class Chord:
    """The paper's Map: servers at random points of a circle, each with the hashes up to its own."""

    def __init__(self, servers: int, rng: np.random.Generator) -> None:
        self.points = np.sort(rng.random(servers))

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the group's server."""
        return int(np.searchsorted(self.points, hash_key(group) / 2**HASH_BITS) % len(self.points))


class Sums:
    """Σ over any group of what is kept by the first 16 bits."""

    def __init__(self, values: Floats | Ints) -> None:
        self._upto = np.concatenate([[0.0], np.cumsum(values)])

    def of(self, group: KeyGroup) -> float:
        """Return the sum over a group's keys; what is told apart by later bits only is spread evenly."""
        hidden = KEY_BITS - SEEN_BITS
        found = self._upto[(group.last >> hidden) + 1] - self._upto[group.key >> hidden]
        return float(found) / (1 << max(0, group.depth - SEEN_BITS))


Measured = dict[Keyspace, dict[KeyGroup, float]]
Due = Callable[[Keyspace, Measured], steps.First | None]


class Servers:
    """All servers' tables. ``messages`` between servers are counted, ``moved`` are the groups that changed servers."""

    def __init__(self, keyspaces: Map, count: int, limits: Limits) -> None:
        root = keyspaces.keyspace_of(KeyGroup(0, 0, KEY_BITS))
        self.keyspaces, self.limits = keyspaces, limits
        self._tables = [empty_table(keyspace, KEY_BITS) for keyspace in range(count)]
        self._tables[root] = root_table(root, KEY_BITS)
        self.messages = 0.0
        self.moved: list[KeyGroup] = []
        self.splits = self.merges = self.recalls = 0

    def table(self, keyspace: Keyspace) -> ServerTable:
        """Return one server's table."""
        return self._tables[keyspace]

    def leaves(self) -> Iterator[tuple[Keyspace, KeyGroup]]:
        """Yield all leaves and who has them."""
        for table in self._tables:
            for group, entry in table.entries.items():
                if entry.standing in LEAVES:
                    yield table.keyspace, group

    def loads(self, interval: Interval) -> Measured:
        """Return what each server measured of its leaves."""
        return self._loads(Sums(interval.packets), Sums(interval.queries))

    def _loads(self, packets: Sums, queries: Sums) -> Measured:
        found: Measured = {}
        for keyspace, group in self.leaves():
            found.setdefault(keyspace, {})[group] = group_load(packets.of(group), queries.of(group))
        return found

    def look(self, interval: Interval) -> None:
        """Let every server split until none has too much; what is counted begins anew."""
        self.messages, self.moved = 0.0, []
        self._until_content(interval, lambda keyspace, loads: split_due(keyspace, loads[keyspace], self.limits))

    def check(self, interval: Interval) -> None:
        """Let every server merge, or recall, what was small since the last check."""
        for find in (pairs, lone_rights):
            self.messages += sum(len(find(table, self._tables, {})) for table in self._tables)
        self._until_content(interval, self._merge_due)

    def _merge_due(self, keyspace: Keyspace, loads: Measured) -> steps.MergeGroup | steps.RecallGroup | None:
        table, own = self._tables[keyspace], loads[keyspace]
        return merge_due(keyspace, own, pairs(table, self._tables, loads), self.limits) or recall_due(
            keyspace, own, lone_rights(table, self._tables, loads), self.limits
        )

    def _until_content(self, interval: Interval, due: Due) -> None:
        packets, queries = Sums(interval.packets), Sums(interval.queries)
        loads = self._loads(packets, queries)
        for _ in range(MOST_ROUNDS):
            acted = False
            for keyspace in sorted(loads):
                step = due(keyspace, loads) if keyspace in loads else None
                if step is not None:
                    acted = True
                    self._carry_through(step, queries)
                    loads = self._loads(packets, queries)
            if not acted:
                return

    def _carry_through(self, first: steps.First, queries: Sums) -> None:
        step: steps.Step | None = first
        self.splits += isinstance(first, steps.SplitGroup)
        self.merges += isinstance(first, steps.MergeGroup)
        self.recalls += isinstance(first, steps.RecallGroup)
        while step is not None:
            outcome = self._carry_out(step)
            if isinstance(outcome, steps.Begun) and outcome.move is not None:
                self.moved.append(outcome.move.group)
                self.messages += queries.of(outcome.move.group)
            step = following(step, outcome)

    def _carry_out(self, step: steps.Step) -> steps.Outcome:
        keyspace = steps.keyspace_of(step)
        table = self._tables[keyspace] = steps.apply(self._tables[keyspace], step, self.keyspaces)
        match step:
            case steps.SplitGroup() | steps.MergeGroup() | steps.RecallGroup():
                return steps.Begun(table.move)
            case steps.GiveKeyGroup():
                self.messages += 2
                return steps.Decided(given(table, step.move))
            case steps.Fetch():
                self._tables[keyspace] = emptied(table, step.move)
                return steps.Fetched(())
            case steps.AcceptKeyGroup() | steps.Settle() | steps.Forget():
                self.messages += 2
        return steps.Done()
