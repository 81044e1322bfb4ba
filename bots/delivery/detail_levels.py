"""Levels of detail of notifications: how many entries are shown in full, and how long their summaries are.

Only the titles of the other entries are shown. A notification is rendered at the most detailed level at which its text
fits into one message; all channels in the notification have the same level.
"""

from typing import Final

import msgspec

from service.users.preferences import MAX_TEXT_CHARS


class DetailLevel(msgspec.Struct, frozen=True):
    """The level of detail at which one channel is shown in a notification.

    - ``entries``: the maximum number of entries that are shown in full.
    - ``summary_chars``: the maximum length of each summary.
    - ``has_files``: whether the audio or video file of an entry is shown.
    - ``lines``: the maximum number of changed lines of a page that are shown.
    - ``line_chars``: the maximum length of each of these lines.
    """

    entries: int
    summary_chars: int
    has_files: bool
    lines: int
    line_chars: int


DETAIL_LEVELS: Final = (
    DetailLevel(5, MAX_TEXT_CHARS, True, 12, 300),
    DetailLevel(5, 1_000, True, 12, 300),
    DetailLevel(5, 300, True, 12, 300),
    DetailLevel(5, 100, True, 8, 150),
    DetailLevel(5, 0, False, 5, 80),
    DetailLevel(2, 0, False, 2, 80),
    DetailLevel(0, 0, False, 0, 0),
)
"""The levels of detail, from the most detailed to the briefest."""


def limit_summaries(detail: DetailLevel, text_chars: int) -> DetailLevel:
    """Return the level ``detail`` with summaries of at most ``text_chars`` characters, as the user has chosen."""
    return detail if detail.summary_chars <= text_chars else msgspec.structs.replace(detail, summary_chars=text_chars)
