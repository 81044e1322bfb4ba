"""Levels of detail of notifications: how many entries are shown in full, and how long their summaries are.

Only the titles of the other entries are shown. A notification is rendered at the most detailed level at which its text
fits into one message; all channels in the notification have the same level.
"""

from typing import Final

import msgspec


class DetailLevel(msgspec.Struct, frozen=True):
    """The level of detail at which one channel is shown in a notification.

    - ``entries``: the maximum number of entries that are shown in full.
    - ``summary_chars``: the maximum length of each summary.
    - ``lines``: the maximum number of changed lines of a page that are shown.
    - ``line_chars``: the maximum length of each of these lines.
    """

    entries: int
    summary_chars: int
    lines: int
    line_chars: int


DETAIL_LEVELS: Final = (
    DetailLevel(5, 300, 12, 300),
    DetailLevel(5, 100, 8, 150),
    DetailLevel(5, 0, 5, 80),
    DetailLevel(2, 0, 2, 80),
    DetailLevel(0, 0, 0, 0),
)
"""The levels of detail, from the most detailed to the briefest."""
