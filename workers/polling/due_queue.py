"""A priority queue of channels, ordered by due time; used for polls and for registrations."""

from heapq import heapify, heappop, heappush
from math import inf

from service.model import ChannelId

_SPAN_S = 60.0
"""Length of the periods in which channels are collected until they are ordered."""


class DueQueue:
    """A priority queue of channels, ordered by due time. The caller chooses which clock the times refer to."""

    # Only the channels of the first period are in a heap. Those of later periods are in one list per period, which
    # needs a tenth of the memory. In both, an outdated entry stays until its time comes. This costs a few microseconds
    # per poll for any number of channels; one interval job per channel would cost a fifth of a core at 1,000 polls/s.

    def __init__(self) -> None:
        self._due_s: dict[ChannelId, float] = {}
        self._heap: list[tuple[float, ChannelId]] = []
        """The channels that are due in periods before ``_end``."""
        self._end = -inf
        """The number of the first period whose channels are not in the heap."""
        self._later: dict[float, list[ChannelId]] = {}
        """The channels of each period from ``_end`` on, by the number of the period."""
        self._periods: list[float] = []
        """The keys of ``_later``, as a heap."""

    def schedule(self, channel_id: ChannelId, due_s: float) -> None:
        """Set the time at which a channel is due, replacing any earlier time."""
        if self._due_s.get(channel_id) == due_s:
            return
        self._due_s[channel_id] = due_s
        period = due_s // _SPAN_S
        if period < self._end:
            heappush(self._heap, (due_s, channel_id))
        elif (channels := self._later.get(period)) is not None:
            channels.append(channel_id)
        else:
            self._later[period] = [channel_id]
            heappush(self._periods, period)

    def remove(self, channel_id: ChannelId) -> None:
        """Remove a channel, so that it no longer becomes due."""
        self._due_s.pop(channel_id, None)

    def due_s(self, channel_id: ChannelId) -> float:
        """Return the time at which a channel is due; infinity if the channel is not in the queue."""
        return self._due_s.get(channel_id, inf)

    def __contains__(self, channel_id: ChannelId) -> bool:
        return channel_id in self._due_s

    def pop_due(self, until_s: float, most: float = inf) -> list[tuple[float, ChannelId]]:
        """Remove and return up to ``most`` channels that are due by ``until_s``, earliest first.

        Each item is a pair (due time, channel).
        """
        due: list[tuple[float, ChannelId]] = []
        while len(due) < most and (next_s := self.next_s()) is not None and next_s <= until_s:
            due_s, channel_id = heappop(self._heap)
            if self._due_s.get(channel_id) == due_s:
                del self._due_s[channel_id]
                due.append((due_s, channel_id))
        return due

    def next_s(self) -> float | None:
        """Return a time before which no channel is due; None if the queue is empty.

        Usually, this is when the next channel is due. It may be earlier if a channel was rescheduled or removed.
        """
        while not self._heap and self._periods:
            self._order_next_period()
        return self._heap[0][0] if self._heap else None

    def _order_next_period(self) -> None:
        """Move the channels of the first period in ``_later`` to the empty heap."""
        period = heappop(self._periods)
        self._end = period + 1
        due_s = ((self._due_s.get(channel_id, inf), channel_id) for channel_id in self._later.pop(period))
        self._heap = [each for each in due_s if each[0] // _SPAN_S == period]
        heapify(self._heap)
