"""Overdue channels: those that should have been polled but have not been polled for three poll intervals.

The metric ``coronet_unpolled_channels`` counts them, and the Overview page reports them.
"""

from math import inf

from service.model import ChannelId
from service.settings import Settings
from service.store.channels.admin_settings import AdministeredChannel

_MISSED_INTERVALS = 3
_MIN_SILENCE_S = 15.0
"""Minimum time without a poll after which a channel is overdue. It is longer than the time in which other workers take
over the channels of a dead worker: two leases, by default 12 s."""


class OverdueChannels:
    """The channels that were overdue for a poll when they were last read from the store."""

    def __init__(self, default_interval_s: float) -> None:
        """Start without any overdue channels.

        ``default_interval_s`` is assumed for channels without a recorded poll interval.
        """
        self._default_interval_s = default_interval_s
        self._due_s: dict[ChannelId, float] = {}
        """For each overdue channel, the time (Unix s) since which it should have been polled at least once."""
        self._last_blocked_s: dict[ChannelId, float] = {}
        """When a channel's host was last seen to be blocked (Unix s)."""

    def __len__(self) -> int:
        return len(self._due_s)

    def check(self, found: AdministeredChannel, now_s: float, *, is_blocked: bool) -> None:
        """Record whether the channel ``found``, which was read at ``now_s`` (Unix s), is overdue for a poll.

        ``is_blocked`` states whether the channel's host is blocked.
        """
        cid = found.channel.id
        if is_blocked:
            self._last_blocked_s[cid] = now_s
        allowed_since_s = self._last_blocked_s.get(cid, 0.0)
        if allowed_since_s < found.polled_s:
            self._last_blocked_s.pop(cid, None)
        silence_s = max_silence_s(found, self._default_interval_s)
        if now_s - max(allowed_since_s, poll_due_since_s(found)) > silence_s:
            self._due_s[cid] = now_s - silence_s
        else:
            self._due_s.pop(cid, None)

    def discard(self, cid: ChannelId) -> None:
        """Forget the channel with the id ``cid``, which was removed."""
        self._due_s.pop(cid, None)
        self._last_blocked_s.pop(cid, None)

    def find(self, fleet_started_s: float) -> list[ChannelId]:
        """Return the ids of the overdue channels.

        A fleet that has just started needs some time to poll all channels. Therefore a channel is returned only if
        the fleet has been running longer than the time that the channel may go unpolled (:func:`max_silence_s`).
        ``fleet_started_s`` is the Unix time when the first of the current workers joined the ring.
        """
        return [cid for cid, due_s in self._due_s.items() if due_s > fleet_started_s]


def max_silence_s(found: AdministeredChannel, default_interval_s: float) -> float:
    """Return how many seconds the channel ``found`` may go unpolled before it is overdue.

    The result is infinity if the channel is never polled. ``default_interval_s`` is assumed as the poll interval if
    none is recorded.
    """
    channel = found.channel
    if channel.dormant or channel.moved_to or channel.condition:
        return inf
    interval_s = found.poll_rate.interval_s if found.poll_rate else default_interval_s
    return max(_MISSED_INTERVALS * interval_s, _MIN_SILENCE_S) if interval_s > 0 else inf


def poll_due_since_s(found: AdministeredChannel) -> float:
    """Return the Unix time since which the channel ``found`` has been waiting for its next poll.

    It is the latest of these times: the channel's creation, its last poll, the end of a pause by its publisher or an
    admin, and the last change of its poll interval. During a pause, the result is in the future. All these times are
    in the store, so the result is available even if the worker that owns the channel is dead.
    """
    changed_s = found.poll_rate.since_s if found.poll_rate else 0.0
    return max(found.channel.created_s, found.polled_s, found.no_poll_before_s, found.paused_until_s, changed_s)


def default_poll_interval_s(settings: Settings) -> float:
    """Return the poll interval (s) that is assumed for channels without a recorded one.

    It is the longest interval under the default policy: twice the setting ``longest_wait_s``, which limits the mean
    time from a change to its detection.
    """
    return 2 * settings.longest_wait_s
