"""States of channels in lists: polled, failing, paused, blocked, idle or moved."""

from typing import Literal

from service.console.queries.channel_rows import ChannelRow

State = Literal["polled", "failing", "paused", "blocked", "idle", "moved"]
"""``failing``: the last poll failed. ``idle``: not polled, because it has no subscribers and no admin has set it to be
polled without subscribers. ``paused``: paused by an admin. ``blocked``: an admin has blocked its host. ``moved``:
replaced by another channel."""


def channel_state(row: ChannelRow, subscribers: int, now_s: float, *, is_blocked: bool) -> State:
    """Return the state of a channel at the Unix time ``now_s``.

    ``subscribers`` is the channel's number of subscribers. ``is_blocked`` says whether its host is blocked.
    """
    if row.moved:
        return "moved"
    if is_blocked:
        return "blocked"
    if row.paused_until_s > now_s:
        return "paused"
    if not (subscribers or row.listed):
        return "idle"
    return "failing" if row.failing_since_s else "polled"
