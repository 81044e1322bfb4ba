"""Single splits and merges, step by step with their tables, and regressions that random histories found."""

from service.clash.group_search import DepthCache
from service.clash.key_groups import KeyGroup
from service.clash.move_steps import (
    GiveKeyGroup,
    MergeGroup,
    Put,
    Settle,
    SplitGroup,
    Step,
    next_step,
    resume_step,
)
from service.clash.prefix_query import Record
from service.clash.server_table import GroupState, Move, MoveKind, MoveStage
from service.clash.table_transitions import Accepted, IncorrectDepth, accept_object
from tests.support.memory_keyspaces import MemoryKeyspaces, complete_move, query_all, search, write

BITS = 4
ROOT = KeyGroup(0, 0, BITS)


def store() -> MemoryKeyspaces:
    """Return two keyspaces; the root's right half is not in the root's."""
    made = MemoryKeyspaces(2, BITS)
    assert made.map.keyspace_of(ROOT) != made.map.keyspace_of(ROOT.right)
    return made


def step_names(made: MemoryKeyspaces, step: Step | None) -> list[str]:
    """Carry a move through and return the names of its steps."""
    found = []
    while step is not None:
        found.append(type(step).__name__)
        step = next_step(step, made.carry_out(step))
    return found


def home(made: MemoryKeyspaces) -> int:
    return made.map.keyspace_of(ROOT)


def test_a_split_performs_the_expected_steps() -> None:
    made = store()
    write(made, Record(15, "ada", 1), DepthCache())
    steps = step_names(made, SplitGroup(home(made), ROOT))
    assert steps == ["SplitGroup", "AcceptKeyGroup", "Fetch", "Put", "Fetch", "Settle", "Finish"]
    assert made.leaves() == [ROOT.left, ROOT.right]
    assert made.records[1 - home(made)] == {(15, "ada"): Record(15, "ada", 1)}
    assert made.records[home(made)] == {}


def test_a_merge_performs_the_expected_steps() -> None:
    made = store()
    complete_move(made, SplitGroup(home(made), ROOT))
    steps = step_names(made, MergeGroup(home(made), ROOT))
    assert steps == ["MergeGroup", "GiveKeyGroup", "TakeBack", "Fetch", "Forget", "Finish"]
    assert made.leaves() == [ROOT]


def test_clients_of_a_returning_key_are_redirected_after_the_commit() -> None:
    """The balancer fails right after the child has given the group."""
    made = store()
    write(made, Record(15, "ada", 1), DepthCache())
    complete_move(made, SplitGroup(home(made), ROOT))
    begun = made.carry_out(MergeGroup(home(made), ROOT))
    asked = next_step(MergeGroup(home(made), ROOT), begun)
    assert isinstance(asked, GiveKeyGroup)
    made.carry_out(asked)
    assert write(made, Record(15, "bob", 2), DepthCache()) <= 3
    assert made.tables[home(made)].state(ROOT) is GroupState.RETURNING
    assert [record.id for record in query_all(made, ROOT, DepthCache())] == ["ada", "bob"]


def test_a_child_that_is_not_a_leaf_declines_and_the_merge_is_abandoned() -> None:
    made = store()
    complete_move(made, SplitGroup(home(made), ROOT))
    complete_move(made, SplitGroup(1 - home(made), ROOT.right))
    before = made.leaves()
    assert step_names(made, MergeGroup(home(made), ROOT)) == ["MergeGroup", "GiveKeyGroup", "Abandon"]
    assert made.leaves() == before
    assert made.moves() == []


def test_a_declined_merge_stays_declined_for_a_late_request() -> None:
    made = store()
    complete_move(made, SplitGroup(home(made), ROOT))
    complete_move(made, SplitGroup(1 - home(made), ROOT.right))
    begun = made.carry_out(MergeGroup(home(made), ROOT))
    asked = next_step(MergeGroup(home(made), ROOT), begun)
    assert isinstance(asked, GiveKeyGroup)
    complete_move(made, asked)
    complete_move(made, MergeGroup(1 - home(made), ROOT.right))
    before = list(made.tables)
    assert next_step(asked, made.carry_out(asked)) is not None
    assert made.tables == before


def test_a_redirected_writers_proof_makes_the_taker_accept() -> None:
    """The balancer fails right after the commit and has no successor yet."""
    made = store()
    made.carry_out(SplitGroup(home(made), ROOT))
    refused = accept_object(made.tables[1 - home(made)], 15)
    assert isinstance(refused, IncorrectDepth)
    assert write(made, Record(15, "ada", 1), DepthCache()) <= 3
    assert made.tables[1 - home(made)].state(ROOT.right) is GroupState.ARRIVING


def test_a_deletion_during_a_move_is_kept() -> None:
    made = store()
    write(made, Record(15, "ada", 1), DepthCache())
    step: Step | None = SplitGroup(home(made), ROOT)
    while step is not None and not isinstance(step, Put):
        step = next_step(step, made.carry_out(step))
    assert isinstance(step, Put)
    write(made, Record(15, "ada", 2, present=False), DepthCache())
    complete_move(made, step)
    assert query_all(made, ROOT, DepthCache()) == []
    assert made.records == [{}, {}]


def test_a_late_step_of_an_old_move_has_no_effect() -> None:
    """A balancer that was delayed during the next move does not settle, put or drop any of its records."""
    made = store()
    made.carry_out(SplitGroup(home(made), ROOT))
    old = made.tables[home(made)].move
    assert old is not None
    complete_move(made, resume_step(made.tables[home(made)]))
    complete_move(made, MergeGroup(home(made), ROOT))
    made.carry_out(SplitGroup(home(made), ROOT))
    new = made.tables[home(made)].move
    assert new is not None
    assert (old.number, new.number) == (1, 3)
    before = list(made.tables)
    made.carry_out(Settle(old))
    made.carry_out(Put(old, (Record(15, "ada", 1),)))
    assert made.tables == before
    assert made.records == [{}, {}]


def test_a_right_child_of_the_same_keyspace_is_split_again() -> None:
    made = MemoryKeyspaces(3, BITS)
    parent = next(
        group
        for depth in range(BITS - 1)
        for key in range(1 << BITS)
        if made.map.keyspace_of(group := KeyGroup.containing(key, depth, BITS)) == made.map.keyspace_of(group.right)
        and made.map.keyspace_of(group.right) != made.map.keyspace_of(group.right.right)
    )
    while parent not in made.leaves():
        leaf = next(group for group in made.leaves() if parent.key in group)
        complete_move(made, SplitGroup(made.map.keyspace_of(leaf), leaf))
    complete_move(made, SplitGroup(made.map.keyspace_of(parent), parent))
    assert {parent.left, parent.right.left, parent.right.right} <= set(made.leaves())
    keyspace = made.map.keyspace_of(parent)
    complete_move(made, MergeGroup(keyspace, parent.right))
    assert step_names(made, MergeGroup(keyspace, parent)) == ["MergeGroup"]
    assert parent in made.leaves()


def test_an_emptied_donor_does_not_give_records_that_return_to_it() -> None:
    """The child has settled and split again, and a part returned to the donor before it finished the first move."""
    made = store()
    made.carry_out(SplitGroup(home(made), ROOT))
    step = resume_step(made.tables[home(made)])
    while step is not None and not isinstance(step, Settle):
        step = next_step(step, made.carry_out(step))
    assert step is not None
    made.carry_out(step)
    assert made.tables[home(made)].stage is MoveStage.EMPTIED
    back = next(
        group
        for group in (ROOT.right.right, ROOT.right.right.right, ROOT.right.right.right.right)
        if made.map.keyspace_of(group) == home(made)
    )
    complete_move(made, SplitGroup(1 - home(made), ROOT.right))
    assert back in made.leaves() or back.depth > ROOT.right.right.depth
    write(made, Record(back.last, "ada", 1), DepthCache())
    complete_move(made, resume_step(made.tables[home(made)]))
    assert [record.id for record in query_all(made, ROOT, DepthCache())] == ["ada"]


def test_a_proof_for_another_keyspace_has_no_effect() -> None:
    made = store()
    asking = search(made, 15, DepthCache())
    foreign = Move(7, MoveKind.SPLIT, home(made), 1 - home(made), ROOT.right)
    probe = type(asking.probe)(home(made), 15, 0, foreign)
    assert made.write(probe, Record(15, "ada", 1)) == Accepted(ROOT)
