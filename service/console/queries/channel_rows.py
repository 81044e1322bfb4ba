"""The fields by which the console's lists search, filter and sort channels, and the calculation of a channel's state.

A channel is polled, failing, paused, blocked, idle or moved.
"""

from sys import intern
from typing import Literal

import msgspec

from service.corona.polling_limits import PollingLimits
from service.corona.weekly_rhythm import publishing_clock
from service.feeds.canonical_urls import host_of
from service.model import ChannelId
from service.net.sites_and_networks import site_of
from service.store.channels.admin_settings import AdministeredChannel


class ChannelRow(msgspec.Struct, frozen=True, gc=False):
    """The fields of a channel that lists use for searching and sorting, except its number of subscribers.

    ``search_text`` is the case-folded title and URL, separated by a newline. Times are Unix seconds; 0 means never.
    """

    id: ChannelId
    search_text: str
    site: str
    kind: str
    listed: bool
    private: bool
    condition: str
    moved: bool
    version: int
    created_s: float
    failing_since_s: float
    update_interval_s: float
    paused_until_s: float
    tags: tuple[str, ...]
    limits: PollingLimits
    rhythm: bytes


def make_row(found: AdministeredChannel, now_s: float) -> ChannelRow:
    """Return the searchable fields of the channel ``found``, which was read at ``now_s`` (Unix s)."""
    channel = found.channel
    return ChannelRow(
        id=channel.id,
        search_text=f"{channel.title or channel.url}\n{channel.url}".casefold(),
        site=intern(site_of(host_of(channel.url))),
        kind=channel.kind,
        listed=channel.listed,
        private=channel.private,
        condition=channel.condition,
        moved=bool(channel.moved_to),
        version=channel.version,
        created_s=channel.created_s,
        failing_since_s=found.failing_since_s or 0.0,
        # The estimate grows steadily while nothing is published; rounding keeps the row from changing all the time.
        update_interval_s=float(f"{found.updates.interval_s(now_s):.2g}"),
        paused_until_s=found.paused_until_s,
        tags=tuple(map(intern, found.tags)),
        limits=found.limits.without_past_pause(now_s),
        rhythm=found.updates.rhythm if publishing_clock(found.updates.rhythm) else b"",
    )


State = Literal["polled", "failing", "paused", "blocked", "idle", "moved"]
"""The state of a channel:

- ``polled``: it is polled, and the last poll did not fail.
- ``failing``: it is polled, but the last poll failed.
- ``paused``: an admin has paused it.
- ``blocked``: an admin has blocked its host.
- ``idle``: it has no subscribers, and no admin has set it to be polled without subscribers.
- ``moved``: another channel has replaced it.
"""


def channel_state(row: ChannelRow, subscribers: int, now_s: float, *, is_blocked: bool) -> State:
    """Return the state of a channel at the Unix time ``now_s``.

    ``subscribers`` is the channel's number of subscribers. ``is_blocked`` states whether the channel's host is blocked.
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
