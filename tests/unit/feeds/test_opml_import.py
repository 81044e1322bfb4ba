"""The file that lists the feeds that could not be imported."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from service.feeds.opml_import import write_failures

ROWS = st.lists(
    st.tuples(
        st.integers(1, 12_000), st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), st.text("ab,\"' ")
    )
)


@given(ROWS)
def test_the_file_has_a_row_for_each_failure(rows: list[tuple[int, str, str]]) -> None:
    head, *read = csv.reader(io.StringIO(write_failures(rows).decode(), newline=""))
    assert head == ["line", "url", "reason"]
    assert [(int(line), url.removeprefix("'"), reason.removeprefix("'")) for line, url, reason in read] == [
        (line, url.removeprefix("'"), reason.removeprefix("'")) for line, url, reason in rows
    ]


@given(ROWS)
def test_no_cell_begins_like_a_formula(rows: list[tuple[int, str, str]]) -> None:
    file = write_failures([*rows, (1, "=cmd()", "@SUM(A1)"), (0, "-1", "+1")]).decode()
    assert not any(cell[:1] in "=+-@\t" and cell for row in csv.reader(io.StringIO(file, newline="")) for cell in row)
