"""The polling audit recognises polls that were skipped or made twice, and wedges."""

from collections.abc import Sequence

from tests.support.polling_audit import IrregularGap, Phase, irregular_gaps, wedge
from tests.support.public_publisher import Request

URL = "http://one.example/feed"
BEFORE, AFTER = Phase(0, 0, 100, {URL: 10.0}), Phase(100, 115, 200, {URL: 20.0})
EVEN = [*range(5, 110, 10), *range(125, 200, 20)]


def audited(times_s: Sequence[float]) -> tuple[list[IrregularGap], list[IrregularGap]]:
    requests = [Request(at_s, "one.example", "/feed", "w0", 304) for at_s in times_s]
    return irregular_gaps({URL: requests}, [BEFORE, AFTER], [URL])


def test_even_polls_of_both_phases_are_regular() -> None:
    assert audited(EVEN) == ([], [])


def test_either_gap_is_regular_around_the_change() -> None:
    assert audited([at_s for at_s in EVEN if at_s != 105]) == ([], [])


def test_a_missing_poll_is_skipped() -> None:
    assert audited([at_s for at_s in EVEN if at_s != 55]) == ([IrregularGap(URL, 45, 20, 10, 10)], [])


def test_polls_that_end_early_are_skipped() -> None:
    skipped, _ = audited([at_s for at_s in EVEN if at_s < 160])
    assert [gap.at_s for gap in skipped] == [145]


def test_a_channel_without_polls_is_skipped() -> None:
    skipped, _ = audited([])
    assert skipped


def test_a_second_poll_soon_after_the_first_is_doubled() -> None:
    assert audited(sorted([*EVEN, 57])) == ([], [IrregularGap(URL, 55, 2, 10, 10)])


def test_a_wedge_shares_leading_digits_with_the_channel() -> None:
    ids = [f"{digit}{'0' * 39}" for digit in "02468ace"]
    channel = "3" + "f" * 39
    assert wedge(ids, channel, 1) == {ids[1]}
    assert wedge(ids, channel, 2) == set(ids[:2])
    assert wedge(ids, channel, 4) == set(ids[:4])
    assert wedge(ids, channel, 8) == set(ids)
    assert wedge(ids, channel, 3) == set()
