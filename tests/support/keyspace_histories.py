"""Drawn histories of key groups: who writes, reads, splits and merges, and which keeper dies when.

Every step, every question of a search and every page of a reader is a rule of its own, so that they interleave in any
order; what a keeper does after it was replaced, too.
"""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.clash.group_search import DepthCache, DepthSearch, LeafGroupSearch
from service.clash.key_groups import KeyGroup
from service.clash.move_steps import (
    InitialStep,
    MergeGroup,
    RecallGroup,
    SplitGroup,
    Step,
    keyspace_of,
    next_step,
    resume_step,
)
from service.clash.prefix_query import Position, PrefixQuery, Record
from service.clash.server_table import SETTLED_STATES, GroupState
from service.errors import MoveRefused
from tests.support.memory_keyspaces import (
    PAGE,
    MemoryKeyspaces,
    carried_through,
    everything,
    next_units,
    search,
    walk_on,
)

BITS = 4
KEYS = st.integers(0, (1 << BITS) - 1)
PEOPLE = (f"{'ada':20}", f"{'bob':20}")
IDS = st.sampled_from(PEOPLE)
STEPS = st.one_of(st.integers(1, 4), st.just(100))
PLACES = st.integers(0, 100)
CLIENTS = 2
BEGINNINGS: tuple[type[InitialStep], ...] = (SplitGroup, SplitGroup, MergeGroup, RecallGroup)


class _Dividing:
    """A search for the units of a prefix under way, and what it has found."""

    def __init__(self, prefix: KeyGroup, units: LeafGroupSearch) -> None:
        self.prefix, self.units = prefix, units
        self.found: list[int] = []


class _Reading:
    """A prefix query under way: what it has to find, and what it may."""

    def __init__(self, walk: PrefixQuery, present: set[Position]) -> None:
        self.walk = walk
        self.must, self.may = set(present), set(present)
        self.found: list[Position] = []


class Moves(RuleBasedStateMachine):
    """The model is ``present``: who was told that they are subscribed."""

    def opened(self, count: int) -> MemoryKeyspaces:
        """Return the store that the histories are of."""
        return MemoryKeyspaces(count, BITS)

    @initialize(count=st.integers(1, 5))
    def begin(self, count: int) -> None:
        self.store = self.opened(count)
        self.depths = [DepthCache() for _ in range(CLIENTS)]
        self.seq = 0
        self.present: set[Position] = set()
        self.keepers: list[Step] = []
        self.writing: list[tuple[DepthSearch, Record, int]] = []
        self.readings: list[_Reading] = []
        self.dividings: list[_Dividing] = []

    @rule(key=KEYS, identity=IDS, subscribes=st.booleans(), client=st.integers(0, CLIENTS - 1))
    def somebody_writes(self, key: int, identity: str, subscribes: bool, client: int) -> None:  # noqa: FBT001 - a drawn value
        self.seq += 1
        if any(record.position == (key, identity) for _, record, _ in self.writing):
            return  # a person's changes of mind are settled one after another
        record = Record(key, identity, self.seq, subscribes)
        self.writing.append((search(self.store, key, self.depths[client]), record, client))

    @precondition(lambda self: self.writing)
    @rule(place=PLACES)
    def a_write_is_tried(self, place: int) -> None:
        searching, record, client = self.writing[place % len(self.writing)]
        found = searching.on_answer(self.store.write(searching.probe, record))
        if found is None:
            return
        self.depths[client].record(found.group, searching.depth)
        self.writing.remove((searching, record, client))
        for reading in self.readings:
            if record.present:
                reading.may.add(record.position)
            else:
                reading.must.discard(record.position)
        (self.present.add if record.present else self.present.discard)(record.position)

    @rule(place=PLACES, begins=st.sampled_from(BEGINNINGS), steps=STEPS)
    def a_keeper_begins(self, place: int, begins: type[InitialStep], steps: int) -> None:
        wanted = [
            begins(table.keyspace, group)
            for table in self.store.tables
            for group, entry in table.entries.items()
            if (entry.state in SETTLED_STATES if begins is SplitGroup else entry.state is GroupState.SPLIT)
        ]
        at_rest = [step for step in wanted if self.store.tables[step.keyspace].move is None]
        if choice := at_rest or wanted:
            self._carry_out(choice[place % len(choice)], steps)

    @precondition(lambda self: self.keepers)
    @rule(place=PLACES, steps=STEPS)
    def a_keeper_goes_on(self, place: int, steps: int) -> None:
        self._carry_out(self.keepers.pop(place % len(self.keepers)), steps)

    @precondition(lambda self: self.keepers)
    @rule(place=PLACES, answered=st.booleans())
    def a_keeper_dies(self, place: int, answered: bool) -> None:  # noqa: FBT001 - a drawn value
        """Either between two steps, or when its step is done and it does not know."""
        step = self.keepers.pop(place % len(self.keepers))
        if not answered:
            others = list(self.keepers)
            self._carry_out(step, 1)
            self.keepers = others

    @precondition(lambda self: self.store.moves())
    @rule(place=PLACES, steps=STEPS)
    def another_keeper_takes_over(self, place: int, steps: int) -> None:
        """The old one may be alive, and only slow."""
        moves = self.store.moves()
        step = resume_step(self.store.tables[moves[place % len(moves)].keyspace])
        assert step is not None
        self._carry_out(step, steps)

    @rule(key=KEYS, depth=st.integers(0, BITS), client=st.integers(0, CLIENTS - 1))
    def somebody_begins_to_read(self, key: int, depth: int, client: int) -> None:
        prefix = KeyGroup.containing(key, depth, BITS)
        under = {position for position in self.present if position[0] in prefix}
        walk = PrefixQuery(prefix, self.store.map, self.depths[client], PAGE)
        self.readings.append(_Reading(walk, under))

    @precondition(lambda self: self.readings)
    @rule(place=PLACES)
    def a_reader_goes_on(self, place: int) -> None:
        reading = self.readings[place % len(self.readings)]
        reading.found += [record.position for record in walk_on(self.store, reading.walk)]
        if reading.walk.request is None:
            self.readings.remove(reading)
            assert len(reading.found) == len(set(reading.found))
            assert reading.must <= set(reading.found) <= reading.may

    @rule(key=KEYS, depth=st.integers(0, BITS), client=st.integers(0, CLIENTS - 1))
    def somebody_divides_a_fan_out(self, key: int, depth: int, client: int) -> None:
        prefix = KeyGroup.containing(key, depth, BITS)
        self.dividings.append(_Dividing(prefix, LeafGroupSearch(prefix, self.store.map, self.depths[client])))

    @precondition(lambda self: self.dividings)
    @rule(place=PLACES)
    def dividing_goes_on(self, place: int) -> None:
        dividing = self.dividings[place % len(self.dividings)]
        for unit in next_units(self.store, dividing.units):
            dividing.found += range(unit.key, unit.last + 1)
        if dividing.units.probe is None:
            self.dividings.remove(dividing)
            assert dividing.found == list(range(dividing.prefix.key, dividing.prefix.last + 1))

    @invariant()
    def leaves_partition_the_keys(self) -> None:
        keys = [key for leaf in self.store.leaves() for key in range(leaf.key, leaf.last + 1)]
        assert keys == list(range(1 << BITS))

    @rule(client=st.integers(0, CLIENTS - 1))
    def everybody_is_found_once_by_prefix_and_by_key(self, client: int) -> None:
        depths = self.depths[client]
        found = [record.position for record in everything(self.store, KeyGroup(0, 0, BITS), depths)]
        assert found == sorted(self.present)
        for key in range(1 << BITS):
            found = [record.position for record in everything(self.store, KeyGroup(key, BITS, BITS), depths)]
            assert found == sorted(position for position in self.present if position[0] == key)

    def teardown(self) -> None:
        """In the end one keeper finishes everything, and nothing lies anywhere but where it belongs."""
        for move in self.store.moves():
            carried_through(self.store, resume_step(self.store.tables[move.keyspace]))
        assert self.store.moves() == []
        for table, records in zip(self.store.tables, self.store.records, strict=True):
            assert {entry.state for entry in table.entries.values()} <= {*SETTLED_STATES, GroupState.SPLIT}
            assert all(record.present and table.leaf(record.key) for record in records.values())
        assert sorted(position for held in self.store.records for position in held) == sorted(self.present)

    def _carry_out(self, step: Step, most: int) -> None:
        """Carry out up to so many steps of one keeper; then it pauses."""
        going = step
        for _ in range(most):
            before = list(self.store.tables)
            try:
                outcome = self.store.carry_out(going)
            except MoveRefused:
                assert self.store.tables == before
                return
            pairs = zip(self.store.tables, before, strict=True)
            assert {table.keyspace for table, old in pairs if table is not old} <= {keyspace_of(going)}
            after = next_step(going, outcome)
            if after is None:
                return
            going = after
        self.keepers.append(going)


def live_through(moves: Moves, random: Random) -> None:
    """Let a drawn history happen, to its end."""
    moves.begin(random.randint(2, 5))
    for _ in range(random.randint(20, 120)):
        _something(moves, random)
        moves.leaves_partition_the_keys()
    moves.teardown()


def _something(moves: Moves, random: Random) -> None:
    key, place, client = random.randrange(1 << BITS), random.randrange(100), random.randrange(CLIENTS)
    steps, depth = random.choice((1, 2, 3, 4, 100)), random.randrange(BITS + 1)
    match random.randrange(14):
        case 0 | 1:
            moves.somebody_writes(key, random.choice(PEOPLE), random.random() < 0.6, client)
        case 2 | 3 if moves.writing:
            moves.a_write_is_tried(place)
        case 4 | 5:
            moves.a_keeper_begins(place, random.choice(BEGINNINGS), steps)
        case 6 | 7 if moves.keepers:
            moves.a_keeper_goes_on(place, steps)
        case 8 if moves.keepers:
            moves.a_keeper_dies(place, random.random() < 0.5)
        case 9 if moves.store.moves():
            moves.another_keeper_takes_over(place, steps)
        case kind:
            _somebody_reads(moves, kind, KeyGroup.containing(key, depth, BITS), place, client)


def _somebody_reads(moves: Moves, kind: int, prefix: KeyGroup, place: int, client: int) -> None:
    match kind:
        case 10:
            moves.somebody_begins_to_read(prefix.key, prefix.depth, client)
        case 11:
            moves.somebody_divides_a_fan_out(prefix.key, prefix.depth, client)
        case 12 if place < 30:
            moves.everybody_is_found_once_by_prefix_and_by_key(client)
        case 13 if moves.dividings:
            moves.dividing_goes_on(place)
        case _ if moves.readings:
            moves.a_reader_goes_on(place)
