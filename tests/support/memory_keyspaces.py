"""In-memory keyspaces with the semantics of the store's scripts; every method is atomic in one keyspace."""

from collections.abc import Iterable

from service.clash import move_steps
from service.clash.group_search import DepthCache, DepthSearch, Probe
from service.clash.key_groups import KeyGroup, Keyspaces
from service.clash.move_steps import next_step
from service.clash.prefix_query import Page, Position, PrefixQuery, ReadDonor, ReadLeaf, Record, newer
from service.clash.server_table import LEAF_STATES, Move, MoveKind, MoveStage, empty_table, root_table
from service.clash.table_transitions import (
    Accepted,
    AcceptObjectReply,
    accept_object,
    apply_proof,
    is_giving,
    is_taking,
    mark_emptied,
)

PAGE = 2
MAX_STEPS = 1000
"""Maximum number of steps; more would indicate an endless loop."""
EMPTY_PAGE = Page((), complete=True)


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
            case move_steps.SplitGroup() | move_steps.MergeGroup():
                return move_steps.MoveStarted(after.move)
            case move_steps.GiveKeyGroup():
                return move_steps.GiveResult(is_giving(after, step.move))
            case move_steps.Fetch():
                return self._fetch(step)
            case move_steps.Put():
                return self._put(step)
        if after is not before and (leaf := move_steps.filled_leaf(step, after)) is not None:
            self._drop_tombstones(keyspace, leaf)
        return move_steps.StepDone()

    def write(self, probe: Probe, record: Record) -> AcceptObjectReply:
        """Execute AcceptObject for ``record``, and store it if the probed group accepts it; return the reply."""
        found = self.ask(probe)
        if isinstance(found, Accepted):
            stored = self.records[probe.keyspace]
            latest = record_after_write(stored.get(record.position), record, arriving=found.move is not None)
            stored.pop(record.position, None)
            if latest is not None:
                stored[record.position] = latest
        return found

    def read_leaf(self, request: ReadLeaf) -> tuple[AcceptObjectReply, Page]:
        """Execute AcceptObject for a reader; return the reply and a page of records, empty if not accepted."""
        found = self.ask(request.probe)
        if not isinstance(found, Accepted):
            return found, EMPTY_PAGE
        wanted = found.group.intersection(request.prefix)
        assert wanted is not None
        return found, make_page(self._sorted(request.probe.keyspace), wanted, request.after, request.count)

    def read_donor(self, request: ReadDonor) -> Page:
        """Return a page of the records of a moving group that the donor still has."""
        move = request.move
        if not is_giving(self.tables[move.donor], move):
            return EMPTY_PAGE
        return make_page(self._sorted(move.donor), request.group, request.after, request.count)

    def leaves(self) -> list[KeyGroup]:
        """Return all groups that accept objects, now or at the next request, in key order."""
        found = [group for table in self.tables for group, entry in table.entries.items() if entry.state in LEAF_STATES]
        return sorted(found + [move.group for move in self.moves() if self._is_in_between(move)])

    def moves(self) -> list[Move]:
        return [table.move for table in self.tables if table.move is not None]

    def _is_in_between(self, move: Move) -> bool:
        """Return whether the donor has given the group away and the recipient has not learned of this yet."""
        if move.kind is MoveKind.SPLIT:
            return self.tables[move.child].seen.get(move.keyspace, 0) < move.number
        return is_giving(self.tables[move.child], move) and self.tables[move.keyspace].stage is MoveStage.PLANNED

    def ask(self, probe: Probe) -> AcceptObjectReply:
        """Execute AcceptObject without changes."""
        table = apply_proof(self.tables[probe.keyspace], probe.proof)
        self.tables[probe.keyspace] = table
        return accept_object(table, probe.key)

    def _fetch(self, step: move_steps.Fetch) -> move_steps.FetchedRecords:
        donor = step.move.donor
        if not is_giving(self.tables[donor], step.move):
            return move_steps.FetchedRecords(())
        for record in step.transferred:
            self.records[donor].pop(record.position, None)
        left = make_page(self._sorted(donor), step.move.group, None, PAGE).records
        if not left:
            self.tables[donor] = mark_emptied(self.tables[donor], step.move)
        return move_steps.FetchedRecords(left)

    def _put(self, step: move_steps.Put) -> move_steps.PutResult:
        taker = step.move.taker
        if not is_taking(self.tables[taker], step.move):
            return move_steps.PutResult(taking=False)
        for record in step.records:
            stored = self.records[taker].get(record.position, record)
            self.records[taker][record.position] = newer(stored, record)
        return move_steps.PutResult(taking=True)

    def _drop_tombstones(self, keyspace: int, leaf: KeyGroup) -> None:
        stored = self.records[keyspace]
        for position in [position for position, record in stored.items() if position[0] in leaf and not record.present]:
            del stored[position]

    def _sorted(self, keyspace: int) -> list[Record]:
        return [record for _, record in sorted(self.records[keyspace].items())]


def search(store: MemoryKeyspaces, key: int, depths: DepthCache) -> DepthSearch:
    return DepthSearch(key, store.bits, store.map, depths)


def write(store: MemoryKeyspaces, record: Record, depths: DepthCache) -> int:
    """Write a record, and return the number of probes."""
    search_state = search(store, record.key, depths)
    while search_state.on_answer(store.write(search_state.probe, record)) is None:
        pass
    return search_state.probes


def advance_query(store: MemoryKeyspaces, walk: PrefixQuery) -> tuple[Record, ...]:
    """Execute the next request of a prefix query, and return the records that the reply completes."""
    match walk.request:
        case ReadLeaf() as request:
            walk.on_leaf_page(*store.read_leaf(request))
            return walk.records
        case ReadDonor() as request:
            walk.on_donor_page(request.move, store.read_donor(request))
    return ()


def query_all(store: MemoryKeyspaces, prefix: KeyGroup, depths: DepthCache) -> list[Record]:
    """Return all records of a prefix query."""
    walk = PrefixQuery(prefix, store.map, depths, PAGE)
    found: list[Record] = []
    for _ in range(MAX_STEPS):
        found += advance_query(store, walk)
        if walk.request is None:
            return found
    raise AssertionError("A reader goes round in circles.")


def complete_move(store: MemoryKeyspaces, step: move_steps.Step | None) -> int:
    """Execute a step and all steps that follow; return the number of steps."""
    count = 0
    while step is not None:
        step = next_step(step, store.carry_out(step))
        count += 1
        assert count < MAX_STEPS
    return count


def record_after_write(stored: Record | None, record: Record, *, arriving: bool) -> Record | None:
    """Return the record that a leaf stores after a write; ``arriving`` if the leaf is still being filled."""
    latest = record if stored is None else newer(record, stored)
    return latest if latest.present or arriving else None


def make_page(records: Iterable[Record], group: KeyGroup, after: Position | None, count: int) -> Page:
    """Return the first ``count`` records of a group after a position, from all records of a keyspace in order."""
    found = (record for record in records if record.key in group and (after is None or record.position > after))
    page = tuple(record for record, _ in zip(found, range(count + 1), strict=False))
    return Page(page[:count], complete=len(page) <= count)
