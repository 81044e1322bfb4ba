"""Invariants of key groups, tables, depth search and prefix queries, on trees of any shape."""

from hypothesis import given
from hypothesis import strategies as st

from service.clash.group_search import DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup, KeyLayout, Keyspaces, shape
from service.clash.move_steps import MergeGroup, SplitGroup
from service.clash.prefix_query import Page, Record, merge_pages
from service.clash.server_table import from_fields, to_fields
from service.clash.split_merge_policy import LoadLimits, SiblingPair, choose_merge, choose_split, group_load
from service.clash.table_transitions import Accepted, IncorrectDepth, accept_object
from service.errors import MoveRefused
from tests.support.memory_keyspaces import MemoryKeyspaces, complete_move, make_page

BITS = 8
KEYS = st.integers(0, (1 << BITS) - 1)
GROUPS = st.builds(KeyGroup.containing, KEYS, st.integers(0, BITS), st.just(BITS))


@st.composite
def trees(draw: st.DrawFn) -> MemoryKeyspaces:
    """Return a store at rest after any splits; some right children map to their parent's keyspace."""
    store = MemoryKeyspaces(draw(st.integers(2, 6)), BITS)
    for key in draw(st.lists(KEYS, max_size=16)):
        leaf = next(group for group in store.leaves() if key in group)
        keyspace = next(table.keyspace for table in store.tables if leaf in table.entries)
        try:
            complete_move(store, SplitGroup(keyspace, leaf))
        except MoveRefused:
            continue
    return store


@given(KEYS, st.integers(0, BITS))
def test_shape_is_idempotent(key: int, depth: int) -> None:
    virtual = shape(key, depth, BITS)
    assert all(shape(virtual, deeper, BITS) == virtual for deeper in range(depth, BITS + 1))


@given(GROUPS.filter(lambda group: group.depth < BITS), KEYS)
def test_a_group_is_the_union_of_its_halves_and_the_left_keeps_the_virtual_key(group: KeyGroup, key: int) -> None:
    assert (key in group) == (key in group.left) + (key in group.right)
    assert group.left.key == group.key
    assert group.left.parent == group.right.parent == group


@given(GROUPS)
def test_a_label_identifies_its_group(group: KeyGroup) -> None:
    assert KeyGroup.from_label(group.label, BITS) == group


@given(GROUPS, GROUPS)
def test_the_intersection_of_two_groups_is_one_of_them_or_empty(one: KeyGroup, other: KeyGroup) -> None:
    shared = {key for key in range(1 << BITS) if key in one and key in other}
    found = one.intersection(other)
    assert shared == (set() if found is None else set(range(found.key, found.last + 1)))


@given(st.text(min_size=1), st.from_regex("[0-9a-f]{40}", fullmatch=True), st.text(min_size=1))
def test_domain_groups_contain_channel_groups_and_these_contain_keys(
    domain: str, channel: str, subscriber: str
) -> None:
    layout = KeyLayout()
    key = layout.key(domain, channel, subscriber)
    assert key in layout.channel_group(domain, channel)
    domain_group = KeyGroup.containing(layout.key(domain, "", ""), layout.domain_bits, layout.bits)
    assert layout.channel_group(domain, channel).intersection(domain_group) is not None
    assert key >> layout.bits == 0


@given(trees(), KEYS, st.integers(0, BITS))
def test_prefix_matches_bound_the_true_depth(store: MemoryKeyspaces, key: int, guess: int) -> None:
    """Theorem 1 for any keyspace; Theorem 2 for the keyspace that the guess leads to."""
    true = next(leaf for leaf in store.leaves() if key in leaf).depth
    for table in store.tables:
        match accept_object(table, key):
            case IncorrectDepth(min_depth=least, moved=None):
                assert least + 1 <= true
                if table.keyspace == store.map.keyspace_of(KeyGroup.containing(key, guess, BITS)) and least < guess:
                    assert true < guess
            case Accepted(group=group):
                assert (group.depth, key in group) == (true, True)
            case _:
                raise AssertionError("Nothing moves.")


@given(trees(), KEYS, st.none() | st.integers(0, BITS))
def test_a_search_finds_the_leaf_in_logarithmically_many_probes(
    store: MemoryKeyspaces, key: int, hint: int | None
) -> None:
    depths = DepthCache()
    if hint is not None:
        depths.record(KeyGroup.containing(key, hint, BITS))
    search = DepthSearch(key, BITS, store.map, depths)
    while (found := search.on_answer(accept_object(store.tables[search.probe.keyspace], key))) is None:
        pass
    assert found.group == next(leaf for leaf in store.leaves() if key in leaf)
    assert search.probes <= (4 if hint is None else 7)


@given(trees(), st.lists(KEYS, min_size=1))
def test_a_cached_leaf_is_found_by_one_probe(store: MemoryKeyspaces, keys: list[int]) -> None:
    depths = DepthCache()
    for key in keys:
        depths.record(next(leaf for leaf in store.leaves() if key in leaf))
    for key in keys:
        search = DepthSearch(key, BITS, store.map, depths)
        assert search.on_answer(accept_object(store.tables[search.probe.keyspace], key)) is not None
    assert len(depths) <= len(store.leaves())


@given(st.lists(GROUPS), KEYS)
def test_cached_groups_never_overlap(groups: list[KeyGroup], key: int) -> None:
    depths, kept = DepthCache(), list[KeyGroup]()
    for group in groups:
        depths.record(group)
        kept = [old for old in kept if old.intersection(group) is None] + [group]
    assert len(depths) == len(kept)
    holding = [group.depth for group in kept if key in group]
    if holding:
        assert depths.depth(key) == holding[0]


@given(trees())
def test_tables_survive_encoding(store: MemoryKeyspaces) -> None:
    for table in store.tables:
        assert from_fields(table.keyspace, to_fields(table), store.map, BITS) == table


@given(trees())
def test_merging_all_groups_restores_the_root(store: MemoryKeyspaces) -> None:
    while len(store.leaves()) > 1:
        deepest = max(store.leaves(), key=lambda group: group.depth).parent
        keyspace = next(table.keyspace for table in store.tables if deepest in table.entries)
        complete_move(store, MergeGroup(keyspace, deepest))
    assert store.leaves() == [KeyGroup(0, 0, BITS)]
    assert sum(len(table.entries) for table in store.tables) == 1


RECORDS = st.lists(st.builds(Record, KEYS, st.sampled_from("ab"), st.integers(0, 3), st.booleans()), max_size=20)


@given(RECORDS, RECORDS, st.integers(1, 5))
def test_merged_pages_have_the_records_of_both(earlier: list[Record], later: list[Record], count: int) -> None:
    """Page after page, each position once, and of two versions the newer."""
    everything = KeyGroup(0, 0, BITS)
    places = [sorted({record.position: record for record in held}.values(), key=_position) for held in (earlier, later)]
    expected = merge_pages(*(Page(tuple(held), complete=True) for held in places)).records
    found: list[Record] = []
    page = Page((), complete=False)
    while not page.complete:
        after = found[-1].position if found else None
        page = merge_pages(*(make_page(held, everything, after, count) for held in places))
        found += page.records
    assert found == list(expected)


LOADS = st.integers(0, 400).map(lambda quarters: quarters / 4)
"""Loads from 0 to 100, whose sums have no rounding errors."""


@given(st.dictionaries(GROUPS, LOADS, min_size=1), LOADS, LOADS)
def test_a_merge_never_causes_a_split(leaves: dict[KeyGroup, float], left: float, right: float) -> None:
    limits = LoadLimits(capacity=100.0)
    pair = SiblingPair(KeyGroup(0, 0, BITS), left, right, local=False)
    merge = choose_merge(3, leaves, [pair], limits)
    assert (merge == MergeGroup(3, pair.group)) == (sum(leaves.values()) + right <= 70)
    step = choose_split(3, leaves, limits)
    if merge is not None:
        assert choose_split(3, {**leaves, pair.group: leaves.get(pair.group, 0.0) + right}, limits) is None
    if sum(leaves.values()) > limits.overload * limits.capacity and any(group.depth < BITS for group in leaves):
        assert isinstance(step, SplitGroup)
        assert leaves[step.group] == max(load for group, load in leaves.items() if group.depth < BITS)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e9), st.floats(0, 1e9))
def test_loads_of_halves_add_up(a: float, b: float, held: float, more: float) -> None:
    assert abs(group_load(a + b, held + more) - group_load(a, held) - group_load(b, more)) < 1e-3


@given(st.integers(1, 300), GROUPS)
def test_every_group_has_a_keyspace_and_the_left_child_the_same(count: int, group: KeyGroup) -> None:
    keyspaces = Keyspaces(count)
    keyspaces.check(keyspaces.keyspace_of(group))
    if group.depth < BITS:
        assert keyspaces.keyspace_of(group.left) == keyspaces.keyspace_of(group)


def _position(record: Record) -> tuple[int, str]:
    return record.position
