"""In-memory keyspaces with the semantics of the store's scripts; every method is atomic in one keyspace."""

from collections.abc import Iterable

from service.clash import move_steps
from service.clash.group_search import DepthCache, DepthSearch, LeafGroupSearch, Probe
from service.clash.key_groups import KeyGroup, Keyspaces
from service.clash.move_steps import next_step
from service.clash.prefix_query import Page, Position, PrefixQuery, ReadDonor, ReadLeaf, Record, newer
from service.clash.server_table import LEAF_STATES, Move, MoveKind, MoveStage, empty_table, root_table
from service.clash.transitions import (
    Accepted,
    AcceptObjectReply,
    accept_object,
    apply_proof,
    has_given,
    is_giving,
    is_taking,
    mark_emptied,
)

PAGE = 2
MOST_STEPS = 1000
"""Maximum number of steps; more would indicate an endless loop."""
NOTHING = Page((), complete=True)


class MemoryKeyspaces:
    """The keyspaces, without workers that maintain them."""

    def __init__(self, count: int, bits: int) -> None:
        self.map = Keyspaces(count)
        self.bits = bits
        root = self.map.keyspace_of(KeyGroup(0, 0, bits))
        self.tables = [empty_table(keyspace, bits) for keyspace in range(count)]
        self.tables[root] = root_table(root, bits)
        self.records: list[dict[Position, Record]] = [{} for _ in range(count)]

    def carry_out(self, step: move_steps.Step) -> move_steps.Outcome:
        """Execute a step; raises the errors of :func:`service.clash.move_steps.apply`."""
        keyspace = move_steps.keyspace_of(step)
        before = self.tables[keyspace]
        after = move_steps.apply(before, step, self.map)
        self.tables[keyspace] = after
        match step:
            case move_steps.SplitGroup() | move_steps.MergeGroup() | move_steps.RecallGroup():
                return move_steps.MoveStarted(after.move)
            case move_steps.GiveKeyGroup():
                return move_steps.GiveResult(has_given(after, step.move))
            case move_steps.Fetch():
                return self._fetch(step)
            case move_steps.Put():
                return self._put(step)
        if after is not before and (leaf := move_steps.filled_leaf(step, after)) is not None:
            self._drop_tombstones(keyspace, leaf)
        return move_steps.StepDone()

    def write(self, probe: Probe, record: Record) -> AcceptObjectReply:
        """Execute AcceptObject for a subscription or its end."""
        found = self.ask(probe)
        if isinstance(found, Accepted):
            held = self.records[probe.keyspace]
            latest = written(held.get(record.position), record, arriving=found.move is not None)
            held.pop(record.position, None)
            if latest is not None:
                held[record.position] = latest
        return found

    def read_leaf(self, question: ReadLeaf) -> tuple[AcceptObjectReply, Page]:
        """Execute AcceptObject for a reader."""
        found = self.ask(question.probe)
        if not isinstance(found, Accepted):
            return found, NOTHING
        wanted = found.group.intersection(question.prefix)
        assert wanted is not None
        return found, cut(self._sorted(question.probe.keyspace), wanted, question.after, question.count)

    def read_donor(self, question: ReadDonor) -> Page:
        """Return the records that have not been moved yet."""
        move = question.move
        if not is_giving(self.tables[move.donor], move):
            return NOTHING
        return cut(self._sorted(move.donor), question.group, question.after, question.count)

    def leaves(self) -> list[KeyGroup]:
        """Return all groups that accept objects, now or at the next request, in key order."""
        found = [group for table in self.tables for group, entry in table.entries.items() if entry.state in LEAF_STATES]
        return sorted(found + [move.group for move in self.moves() if self._is_in_between(move)])

    def moves(self) -> list[Move]:
        return [table.move for table in self.tables if table.move is not None]

    def _is_in_between(self, move: Move) -> bool:
        """Return whether the donor gave the group and the recipient has not noticed it."""
        if move.kind is MoveKind.SPLIT:
            return self.tables[move.child].seen.get(move.keyspace, 0) < move.number
        return has_given(self.tables[move.child], move) and self.tables[move.keyspace].stage is MoveStage.PLANNED

    def ask(self, probe: Probe) -> AcceptObjectReply:
        """Execute AcceptObject without changes."""
        table = apply_proof(self.tables[probe.keyspace], probe.proof)
        self.tables[probe.keyspace] = table
        return accept_object(table, probe.key)

    def _fetch(self, step: move_steps.Fetch) -> move_steps.FetchResult:
        donor = step.move.donor
        if not is_giving(self.tables[donor], step.move):
            return move_steps.FetchResult(())
        for record in step.transferred:
            self.records[donor].pop(record.position, None)
        left = cut(self._sorted(donor), step.move.group, None, PAGE).records
        if not left:
            self.tables[donor] = mark_emptied(self.tables[donor], step.move)
        return move_steps.FetchResult(left)

    def _put(self, step: move_steps.Put) -> move_steps.PutResult:
        taker = step.move.taker
        if not is_taking(self.tables[taker], step.move):
            return move_steps.PutResult(taking=False)
        for record in step.records:
            held = self.records[taker].get(record.position, record)
            self.records[taker][record.position] = newer(held, record)
        return move_steps.PutResult(taking=True)

    def _drop_tombstones(self, keyspace: int, leaf: KeyGroup) -> None:
        held = self.records[keyspace]
        for position in [position for position, record in held.items() if position[0] in leaf and not record.present]:
            del held[position]

    def _sorted(self, keyspace: int) -> list[Record]:
        return [record for _, record in sorted(self.records[keyspace].items())]


def search(store: MemoryKeyspaces, key: int, depths: DepthCache) -> DepthSearch:
    return DepthSearch(key, store.bits, store.map, depths.depth(key))


def write(store: MemoryKeyspaces, record: Record, depths: DepthCache) -> int:
    """Write through, and return how many probes it took."""
    asking = search(store, record.key, depths)
    while (found := asking.on_answer(store.write(asking.probe, record))) is None:
        pass
    depths.record(found.group, asking.depth)
    return asking.probes


def walk_on(store: MemoryKeyspaces, walk: PrefixQuery) -> tuple[Record, ...]:
    """Answer a walk's question, and return what it found by that."""
    match walk.request:
        case ReadLeaf() as question:
            walk.on_leaf_page(*store.read_leaf(question))
            return walk.records
        case ReadDonor() as question:
            walk.on_donor_page(question.move, store.read_donor(question))
    return ()


def everything(store: MemoryKeyspaces, prefix: KeyGroup, depths: DepthCache) -> list[Record]:
    """Return what a prefix query finds."""
    walk = PrefixQuery(prefix, store.map, depths, PAGE)
    found: list[Record] = []
    for _ in range(MOST_STEPS):
        found += walk_on(store, walk)
        if walk.request is None:
            return found
    raise AssertionError("A reader goes round in circles.")


def units(store: MemoryKeyspaces, prefix: KeyGroup, depths: DepthCache) -> list[KeyGroup]:
    """Return the leaf groups under a prefix, as their keyspaces tell them."""
    asking, found = LeafGroupSearch(prefix, store.map, depths), list[KeyGroup]()
    for _ in range(MOST_STEPS):
        found += next_units(store, asking)
    assert asking.probe is None
    return found


def next_units(store: MemoryKeyspaces, asking: LeafGroupSearch) -> list[KeyGroup]:
    """Answer one question, and return what was found by that: one unit or none."""
    found = None if asking.probe is None else asking.on_answer(store.ask(asking.probe))
    return [] if found is None else [found]


def carried_through(store: MemoryKeyspaces, step: move_steps.Step | None) -> int:
    """Carry out a step and all that follow; return how many."""
    count = 0
    while step is not None:
        step = next_step(step, store.carry_out(step))
        count += 1
        assert count < MOST_STEPS
    return count


def written(held: Record | None, record: Record, *, arriving: bool) -> Record | None:
    """Return what lies in a leaf after a write, given what it held of that subscription; ``arriving``: it is filled."""
    latest = record if held is None else newer(record, held)
    return latest if latest.present or arriving else None


def cut(records: Iterable[Record], group: KeyGroup, after: Position | None, count: int) -> Page:
    """Return the first ``count`` records of a group beyond a position, from all of a keyspace in their order."""
    found = (record for record in records if record.key in group and (after is None or record.position > after))
    page = tuple(record for record, _ in zip(found, range(count + 1), strict=False))
    return Page(page[:count], complete=len(page) <= count)
