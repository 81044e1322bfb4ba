"""Cursors lead through a list whatever becomes of it meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.console.channel_cache import after, cursor_at
from service.errors import UserError

IDS = st.lists(st.text("0123456789abcdef", min_size=40, max_size=40), unique=True, max_size=30)


@given(IDS, st.integers(1, 10))
def test_pages_hold_every_channel_once(ids: list[str], count: int) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        start = after(ids, cursor)
        seen += ids[start : start + count]
        cursor = cursor_at(ids, start + len(ids[start : start + count]))
        if not cursor:
            break
    assert seen == ids


@given(IDS.filter(lambda ids: len(ids) > 2), st.data())
def test_none_is_skipped_when_the_one_a_cursor_names_is_removed(ids: list[str], data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(ids) - 1))
    cursor = cursor_at(ids, end)
    left = [cid for cid in ids if cid != ids[end - 1]]
    assert left[after(left, cursor) :] == ids[end:]


@pytest.mark.parametrize("cursor", ["zz", "a" * 41, "../..", "a" * 40 + ".x", "a" * 40 + ".", "A" * 40])
def test_a_made_up_cursor_is_refused_with_words(cursor: str) -> None:
    with pytest.raises(UserError, match="Start again without it"):
        after([], cursor)
