"""Selection of the edits of entries to report: the edits that a person has probably made.

Some texts change by themselves, such as relative dates, counters and advertisements. Reporting all these changes would
flood subscribers. Therefore at most three edits of each entry are reported. If many entries of a feed change at once,
or its entries change often, no edits in the feed are reported for 30 days, the *quiet period*. Titles and texts are
judged separately.
"""

from collections.abc import Sequence
from typing import NamedTuple

QUIET_DAYS = 30
MAX_CORRECTIONS = 3
"""Maximum number of edits of an entry that are reported."""
MAX_EDITS_PER_POLL = 10
SAMPLE_SIZE = 20
"""Number of entries from which the edit rate of a channel is estimated."""
_MIN_EVIDENCE = 3


class EditDecision(NamedTuple):
    """The decision about which edits of a document's entries to report.

    - ``is_reported``: for each known entry of the document, whether an edit of the entry is reported.
    - ``edit_counts``: for each known entry of the document, how many edits have been counted so far (up to
      ``MAX_CORRECTIONS``).
    - ``quiet_until``: the last day on which no edits are reported, as a number of days since 1970.
    """

    is_reported: Sequence[bool]
    edit_counts: Sequence[int]
    quiet_until: int


def select_edits(
    is_edited: Sequence[bool], counts_before: Sequence[int], last_seen_days: Sequence[int], quiet_until: int, today: int
) -> EditDecision:
    """Decide which edits of a document's entries to report. Days are given as numbers of days since 1970.

    - ``is_edited``: for each known entry of the document, whether it has changed since the previous poll.
    - ``counts_before``: how often each entry was edited before this poll. The entries of ``is_edited`` come first, in
      the same order. They are followed by recent entries that the document no longer lists.
    - ``last_seen_days``: for each entry in ``counts_before``, the day on which the entry was last seen.
    - ``quiet_until``: the last day on which no edits are reported, as returned by the previous call.
    - ``today``: the current day.
    """
    # After the end of a quiet period, the counts of entries that were last seen before its end restart at zero.
    pairs = zip(counts_before, last_seen_days, strict=True)
    before = [0 if day <= quiet_until < today else count for count, day in pairs]
    listed, unlisted = before[: len(is_edited)], before[len(is_edited) :]
    if not any(is_edited):
        return EditDecision(is_edited, listed, quiet_until)
    counts = [min(count + edited, MAX_CORRECTIONS) for count, edited in zip(listed, is_edited, strict=True)]
    if _is_automatic(is_edited, [*counts, *unlisted][:SAMPLE_SIZE]):
        quiet_until = today + QUIET_DAYS
    is_reported = [
        edited and count < MAX_CORRECTIONS and quiet_until < today
        for count, edited in zip(listed, is_edited, strict=True)
    ]
    return EditDecision(is_reported, counts, quiet_until)


def _is_automatic(is_edited: Sequence[bool], counts: Sequence[int]) -> bool:
    """Return whether software has probably made the edits, because many entries change at once or have changed often.

    - ``is_edited``: for each known entry of the document, whether it has changed.
    - ``counts``: how often each entry has been edited. The document's known entries come first, followed by recent
      entries that the document no longer lists.
    """
    edited, ever_edited = sum(is_edited), len(counts) - counts.count(0)
    return (
        edited > MAX_EDITS_PER_POLL
        or (edited >= _MIN_EVIDENCE and 2 * edited > len(is_edited))
        or (ever_edited >= _MIN_EVIDENCE and 2 * sum(counts) > len(counts))
    )
