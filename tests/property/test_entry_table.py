"""The table of a channel's public entries follows from its log, also if versions are applied repeatedly."""

from hypothesis import given
from hypothesis import strategies as st

from service.model import Change, Delta, Entry, Notice
from service.store.channels.public_entries import MAX_ENTRIES, WINDOW_S, EntryTable, entry_name

CHANNEL, NOW_S = "c" * 40, 10_000_000.0

changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(["addition", "replacement", "omission"]),
        st.builds(Entry, st.sampled_from("abcdef"), st.text(max_size=3)),
        st.sampled_from([0, 0, 0, 7]),
    ),
    max_size=5,
).map(tuple)
details = st.tuples(
    changes, st.integers(0, 5 * 86_400), st.sampled_from([False, False, True]), st.just(None) | st.just(Notice("back"))
)


@st.composite
def histories(draw: st.DrawFn) -> list[Delta]:
    """Return the versions 2, 3 … of a channel, in order of time."""
    drawn = draw(st.lists(details, max_size=12))
    ages_s = sorted((age_s for _, age_s, _, _ in drawn), reverse=True)
    return [
        Delta(CHANNEL, number + 1, number + 2, NOW_S - age_s, own if notice is None else (), initial, notice)
        for number, ((own, _, initial, notice), age_s) in enumerate(zip(drawn, ages_s, strict=True))
    ]


def table_of(history: list[Delta], now_s: float = NOW_S) -> EntryTable:
    table = EntryTable()
    for delta in history:
        table = table.after(delta, now_s)
    return table


@given(histories(), st.data())
def test_a_version_changes_the_table_once(history: list[Delta], data: st.DataObject) -> None:
    repeated = [delta for delta in history for _ in range(data.draw(st.integers(1, 3)))]
    assert table_of(repeated) == table_of(history)
    assert table_of([*history, *history[-1:]]) == table_of(history)


@given(histories())
def test_the_table_has_the_present_text_of_each_entry_of_the_last_three_days(history: list[Delta]) -> None:
    table, published, texts = table_of(history), dict[str, float](), dict[str, str]()
    for delta in history:
        if delta.initial or delta.notice or delta.detected_s <= NOW_S - WINDOW_S:
            continue
        seen = set[str]()
        for change in delta.changes:
            key = change.entry.key
            if change.line or change.kind == "omission" or key in seen:
                continue
            if change.kind == "addition" or key in published:
                published[key] = delta.detected_s if change.kind == "addition" else published[key]
                texts[key] = change.entry.title
                seen.add(key)
    by_version = {delta.version: delta for delta in history}
    listed = {each.name(CHANNEL): by_version[each.version].changes[each.position].entry for each in table.entries}
    assert {name: entry.title for name, entry in listed.items()} == {
        entry_name(CHANNEL, key): title for key, title in texts.items()
    }
    assert all(name == entry_name(CHANNEL, entry.key) for name, entry in listed.items())


@given(histories(), st.integers(0, 4 * 86_400))
def test_a_later_registration_of_an_entry_expires_later(history: list[Delta], later_s: int) -> None:
    for entry in table_of(history).entries:
        first, second = (entry.registered_until_s(now_s) for now_s in (NOW_S, NOW_S + later_s))
        assert entry.expires_s <= first <= second
        assert second > first or later_s < 16


def test_the_table_is_bounded() -> None:
    def many(version: int) -> tuple[Change, ...]:
        return tuple(Change("addition", Entry(f"{version} {number}")) for number in range(250))

    table = table_of([Delta(CHANNEL, version - 1, version, NOW_S, many(version)) for version in range(2, 30)])
    assert len(table.entries) == MAX_ENTRIES
    assert table.entries[-1].version == 29
