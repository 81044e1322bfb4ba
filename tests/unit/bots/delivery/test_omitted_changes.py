"""Changes that are left out of an item for several versions of a channel whose log drops versions."""

from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.batch_renderer import select_changes
from service.model import Change, Delta, Entry
from service.store.delivery.outbox import OutboxItem

CID = "c" * 40


@given(st.lists(st.lists(st.booleans(), max_size=3), min_size=1, max_size=5), st.integers(0, 5))
def test_the_same_changes_are_left_out_after_the_log_has_dropped_versions(
    versions: list[list[bool]], dropped_count: int
) -> None:
    deltas = [
        Delta(CID, number - 1, number, 5.0, tuple(_added(f"{number}-{index}") for index in range(len(version))))
        for number, version in enumerate(versions, 2)
    ]
    flags = [is_omitted for version in versions for is_omitted in version]
    omitted = tuple(index - len(flags) for index, is_omitted in enumerate(flags) if is_omitted)
    item = OutboxItem(CID, len(versions) + 1, 0.0, omitted=omitted or None, after_version=1)
    assert _titles(item, deltas[dropped_count:]) == [
        f"{number}-{index}"
        for number, version in enumerate(versions, 2)
        for index, is_omitted in enumerate(version)
        if number - 2 >= dropped_count and not is_omitted
    ]


def _added(title: str) -> Change:
    return Change("addition", Entry(title, title))


def _titles(item: OutboxItem, deltas: list[Delta]) -> list[str]:
    return [change.entry.title for delta in select_changes(item, deltas) for change in delta.changes]
