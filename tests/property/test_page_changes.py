"""Properties of page changes: they account for every difference, and nothing else is reported."""

import contextlib
import html

from hypothesis import example, given
from hypothesis import strategies as st

from service.errors import FeedError
from service.feeds.pages.content_extraction import parse_page
from service.feeds.pages.page_diff import describe_changes, diff_lines
from service.model import ParsedPage
from tests.support.page_reader import URL, Reader, parsed, patched

_LINES = st.lists(st.sampled_from(["one", "two", "three", "four", "five", "price 5 €", "price 6 €"]), max_size=18)
_WORDS = st.text(st.sampled_from("abc äß€1,:"), min_size=1, max_size=12).filter(str.strip)
_BLOCKS = st.lists(_WORDS, min_size=1, max_size=8)
_BLANKS = st.sampled_from([" ", "\n", "\t ", "<!-- 12:00 -->", "\n<!-- nonce=8fe2 -->\n"])


def _longest_common(old: list[str], new: list[str]) -> int:
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for row, one in enumerate(old):
        for column, other in enumerate(new):
            longer = max(lengths[row][column + 1], lengths[row + 1][column])
            lengths[row + 1][column + 1] = lengths[row][column] + 1 if one == other else longer
    return lengths[-1][-1]


@given(_LINES, _LINES)
@example([], [])
def test_diff_keeps_a_longest_common_subsequence(old: list[str], new: list[str]) -> None:
    hunks = diff_lines(old, new)
    assert len(old) - sum(hunk.old_end - hunk.old_start for hunk in hunks) == _longest_common(old, new)
    assert len(new) - sum(hunk.new_end - hunk.new_start for hunk in hunks) == _longest_common(old, new)


@given(_LINES, _LINES)
def test_hunks_patch_the_old_lines_to_the_new_ones(old: list[str], new: list[str]) -> None:
    hunks = diff_lines(old, new)
    page = ParsedPage(lines=tuple(new))
    changes = describe_changes(old, page, hunks, url=URL, revision=1)
    assert patched(old, changes) == new
    assert len({change.entry.key for change in changes}) == len(changes)


@given(_BLOCKS, _BLOCKS)
def test_described_changes_are_the_same_patch(before: list[str], after: list[str]) -> None:
    first, last = (parsed("".join(f"<p>{html.escape(text)}</p>" for text in texts)) for texts in (before, after))
    reader = Reader("".join(f"<p>{html.escape(text)}</p>" for text in before))
    assert patched(first.lines, reader.look(last)) == list(last.lines)


@given(_BLOCKS, st.data())
def test_white_space_comments_and_attributes_are_ignored(texts: list[str], data: st.DataObject) -> None:
    def written() -> str:
        blocks = []
        for text in texts:
            attributes = " ".join(data.draw(st.permutations(["class=a", "id=b", f"data-x={data.draw(st.integers())}"])))
            words = data.draw(_BLANKS).join([" ", *(f"{html.escape(word)} " for word in text.split(" "))])
            blocks.append(f"<p {attributes}>{words}</p>{data.draw(_BLANKS)}")
        return "".join(blocks)

    reader = Reader(written(), written())
    assert reader.sees(written()) == []


@given(st.lists(st.integers(0, 86_399), min_size=3, max_size=8, unique=True), _BLOCKS)
def test_a_clock_is_not_reported_after_it_changed_once(times_s: list[int], texts: list[str]) -> None:
    def page(second: int) -> str:
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        return f"<p>It is {clock} here and now</p>" + "".join(f"<p>{html.escape(text)}</p>" for text in texts)

    reader = Reader(*map(page, times_s[:2]))
    assert [reader.sees(page(second)) for second in times_s[2:]] == [[]] * len(times_s[2:])


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "text/html; charset=utf-7", "text/html; charset=utf-16", "text/plain"]),
)
@example(b"<p>&#x110000;&#xd800;&#0;", "text/html")
@example(b"<?xml version='1.0' encoding='utf-32'?><p>x", "")
@example(b"\xff\xfe<\x00p\x00", "text/html; charset=utf-8")
def test_no_body_raises_anything_but_a_feed_error(body: bytes, content_type: str) -> None:
    with contextlib.suppress(FeedError):
        page = parse_page(body, headers={"content-type": content_type})
        assert page.lines
        assert all(line == " ".join(line.split()) != "" and "\n" not in line for line in page.lines)


@given(st.text(st.sampled_from("<>/pdivtrbl=' \"\n&;#!-ä"), max_size=120))
def test_no_markup_raises_anything_but_a_feed_error(markup: str) -> None:
    with contextlib.suppress(FeedError):
        assert parsed(markup).lines


@given(st.text(max_size=40))
def test_no_selector_raises_anything_but_a_feed_error(selector: str) -> None:
    with contextlib.suppress(FeedError):
        parse_page(b"<p id=a>x</p>", headers={}, selector=selector)
