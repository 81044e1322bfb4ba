"""Random histories of key groups: writes, reads, splits and merges, and failures of balancers at any step.

Every step of a move, every probe of a search and every page of a query is a rule of its own, so that they interleave in
any order, including late steps of a balancer that has been replaced.
"""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.clash.group_search import DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup
from service.clash.move_steps import (
    InitialStep,
    MergeGroup,
    SplitGroup,
    Step,
    keyspace_of,
    next_step,
    resume_step,
)
from service.clash.prefix_query import Position, PrefixQuery, Record
from service.clash.server_table import GroupState
from service.errors import MoveRefused
from tests.support.memory_keyspaces import (
    PAGE,
    MemoryKeyspaces,
    advance_query,
    complete_move,
    query_all,
    search,
)

BITS = 4
KEYS = st.integers(0, (1 << BITS) - 1)
PEOPLE = (f"{'ada':20}", f"{'bob':20}")
IDS = st.sampled_from(PEOPLE)
STEPS = st.one_of(st.integers(1, 4), st.just(100))
PLACES = st.integers(0, 100)
CLIENTS = 2
BEGINNINGS: tuple[type[InitialStep], ...] = (SplitGroup, SplitGroup, MergeGroup)


class _RunningQuery:
    """A prefix query in progress, with the positions that it ``must`` find and ``may`` find."""

    def __init__(self, walk: PrefixQuery, present: set[Position]) -> None:
        self.walk = walk
        self.must, self.may = set(present), set(present)
        self.found: list[Position] = []


class Moves(RuleBasedStateMachine):
    """A state machine whose model is ``present``: the positions of confirmed subscriptions."""

    def create_store(self, count: int) -> MemoryKeyspaces:
        """Return the store under test."""
        return MemoryKeyspaces(count, BITS)

    @initialize(count=st.integers(1, 5))
    def begin(self, count: int) -> None:
        self.store = self.create_store(count)
        self.depths = [DepthCache() for _ in range(CLIENTS)]
        self.seq = 0
        self.present: set[Position] = set()
        self.balancers: list[Step] = []
        self.writes: list[tuple[DepthSearch, Record, int]] = []
        self.queries: list[_RunningQuery] = []

    @rule(key=KEYS, identity=IDS, subscribes=st.booleans(), client=st.integers(0, CLIENTS - 1))
    def start_write(self, key: int, identity: str, subscribes: bool, client: int) -> None:  # noqa: FBT001 - a drawn value
        self.seq += 1
        if any(record.position == (key, identity) for _, record, _ in self.writes):
            return  # one subscription's changes are written one after the other
        record = Record(key, identity, self.seq, subscribes)
        self.writes.append((search(self.store, key, self.depths[client]), record, client))

    @precondition(lambda self: self.writes)
    @rule(place=PLACES)
    def try_write(self, place: int) -> None:
        searching, record, client = self.writes[place % len(self.writes)]
        found = searching.on_answer(self.store.write(searching.probe, record))
        if found is None:
            return
        self.writes.remove((searching, record, client))
        for query in self.queries:
            if record.present:
                query.may.add(record.position)
            else:
                query.must.discard(record.position)
        (self.present.add if record.present else self.present.discard)(record.position)

    @rule(place=PLACES, begins=st.sampled_from(BEGINNINGS), steps=STEPS)
    def begin_move(self, place: int, begins: type[InitialStep], steps: int) -> None:
        possible_steps = [
            begins(table.keyspace, group)
            for table in self.store.tables
            for group, entry in table.entries.items()
            if entry.state is (GroupState.ACTIVE if begins is SplitGroup else GroupState.SPLIT)
        ]
        at_rest = [step for step in possible_steps if self.store.tables[step.keyspace].move is None]
        if choice := at_rest or possible_steps:
            self._carry_out(choice[place % len(choice)], steps)

    @precondition(lambda self: self.balancers)
    @rule(place=PLACES, steps=STEPS)
    def continue_move(self, place: int, steps: int) -> None:
        self._carry_out(self.balancers.pop(place % len(self.balancers)), steps)

    @precondition(lambda self: self.balancers)
    @rule(place=PLACES, answered=st.booleans())
    def fail_balancer(self, place: int, answered: bool) -> None:  # noqa: FBT001 - a drawn value
        """Stop a balancer between two steps (``answered``), or after a step whose answer is lost."""
        step = self.balancers.pop(place % len(self.balancers))
        if not answered:
            others = list(self.balancers)
            self._carry_out(step, 1)
            self.balancers = others

    @precondition(lambda self: self.store.moves())
    @rule(place=PLACES, steps=STEPS)
    def take_over_move(self, place: int, steps: int) -> None:
        """Continue a move by another balancer, although the previous balancer may still be running."""
        moves = self.store.moves()
        step = resume_step(self.store.tables[moves[place % len(moves)].keyspace])
        assert step is not None
        self._carry_out(step, steps)

    @rule(key=KEYS, depth=st.integers(0, BITS), client=st.integers(0, CLIENTS - 1))
    def start_query(self, key: int, depth: int, client: int) -> None:
        prefix = KeyGroup.containing(key, depth, BITS)
        under = {position for position in self.present if position[0] in prefix}
        walk = PrefixQuery(prefix, self.store.map, self.depths[client], PAGE)
        self.queries.append(_RunningQuery(walk, under))

    @precondition(lambda self: self.queries)
    @rule(place=PLACES)
    def continue_query(self, place: int) -> None:
        query = self.queries[place % len(self.queries)]
        query.found += [record.position for record in advance_query(self.store, query.walk)]
        if query.walk.request is None:
            self.queries.remove(query)
            assert len(query.found) == len(set(query.found))
            assert query.must <= set(query.found) <= query.may

    @invariant()
    def leaves_partition_the_keys(self) -> None:
        keys = [key for leaf in self.store.leaves() for key in range(leaf.key, leaf.last + 1)]
        assert keys == list(range(1 << BITS))

    @rule(client=st.integers(0, CLIENTS - 1))
    def all_records_are_found_once(self, client: int) -> None:
        depths = self.depths[client]
        found = [record.position for record in query_all(self.store, KeyGroup(0, 0, BITS), depths)]
        assert found == sorted(self.present)
        for key in range(1 << BITS):
            found = [record.position for record in query_all(self.store, KeyGroup(key, BITS, BITS), depths)]
            assert found == sorted(position for position in self.present if position[0] == key)

    def teardown(self) -> None:
        """Complete all moves, and check that every record is in the leaf of its key."""
        for move in self.store.moves():
            complete_move(self.store, resume_step(self.store.tables[move.keyspace]))
        assert self.store.moves() == []
        for table, records in zip(self.store.tables, self.store.records, strict=True):
            assert {entry.state for entry in table.entries.values()} <= {GroupState.ACTIVE, GroupState.SPLIT}
            assert all(record.present and table.leaf(record.key) for record in records.values())
        assert sorted(position for held in self.store.records for position in held) == sorted(self.present)

    def _carry_out(self, step: Step, most: int) -> None:
        """Execute up to ``most`` steps of one balancer, beginning with ``step``; an unfinished move is paused."""
        current = step
        for _ in range(most):
            before = list(self.store.tables)
            try:
                outcome = self.store.carry_out(current)
            except MoveRefused:
                assert self.store.tables == before
                return
            pairs = zip(self.store.tables, before, strict=True)
            assert {table.keyspace for table, old in pairs if table is not old} <= {keyspace_of(current)}
            after = next_step(current, outcome)
            if after is None:
                return
            current = after
        self.balancers.append(current)


def run_history(moves: Moves, random: Random) -> None:
    """Run a random history of ``moves``, and check the invariants after each step."""
    moves.begin(random.randint(2, 5))
    for _ in range(random.randint(20, 120)):
        _random_step(moves, random)
        moves.leaves_partition_the_keys()
    moves.teardown()


def _random_step(moves: Moves, random: Random) -> None:
    key, place, client = random.randrange(1 << BITS), random.randrange(100), random.randrange(CLIENTS)
    steps, depth = random.choice((1, 2, 3, 4, 100)), random.randrange(BITS + 1)
    match random.randrange(14):
        case 0 | 1:
            moves.start_write(key, random.choice(PEOPLE), random.random() < 0.6, client)
        case 2 | 3 if moves.writes:
            moves.try_write(place)
        case 4 | 5:
            moves.begin_move(place, random.choice(BEGINNINGS), steps)
        case 6 | 7 if moves.balancers:
            moves.continue_move(place, steps)
        case 8 if moves.balancers:
            moves.fail_balancer(place, random.random() < 0.5)
        case 9 if moves.store.moves():
            moves.take_over_move(place, steps)
        case kind:
            _random_read(moves, kind, KeyGroup.containing(key, depth, BITS), place, client)


def _random_read(moves: Moves, kind: int, prefix: KeyGroup, place: int, client: int) -> None:
    match kind:
        case 10:
            moves.start_query(prefix.key, prefix.depth, client)
        case 12 if place < 30:
            moves.all_records_are_found_once(client)
        case _ if moves.queries:
            moves.continue_query(place)
