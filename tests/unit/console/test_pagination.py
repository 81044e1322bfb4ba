"""Cursors of channel lists remain valid while the list changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.console.pagination import find_page_start, next_cursor
from service.errors import UserError

IDS = st.lists(st.text("0123456789abcdef", min_size=40, max_size=40), unique=True, max_size=30)


@given(IDS, st.integers(1, 10))
def test_pages_contain_every_channel_once(ids: list[str], count: int) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        start = find_page_start(ids, cursor)
        seen += ids[start : start + count]
        cursor = next_cursor(ids, start + len(ids[start : start + count]))
        if not cursor:
            break
    assert seen == ids


@given(IDS.filter(lambda ids: len(ids) > 2), st.data())
def test_no_channel_is_skipped_if_the_one_at_the_cursor_is_removed(ids: list[str], data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(ids) - 1))
    cursor = next_cursor(ids, end)
    remaining = [cid for cid in ids if cid != ids[end - 1]]
    assert remaining[find_page_start(remaining, cursor) :] == ids[end:]


@pytest.mark.parametrize("cursor", ["zz", "a" * 41, "../..", "a" * 40 + ".x", "a" * 40 + ".", "A" * 40])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(UserError, match="Start again without one"):
        find_page_start([], cursor)
