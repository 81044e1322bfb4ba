"""A priority queue of channels by the times at which they are due, for polls and for registrations."""

from heapq import heappop, heappush
from math import inf

from service.model import ChannelId


class DueQueue:
    """A priority queue of channels by the times at which they are due. The owner of the queue chooses the clock."""

    # The queue is a heap, in which an outdated entry stays until it becomes the first. A heap costs a few microseconds
    # per poll for any number of channels; one interval job per channel would cost a fifth of a core at 1,000 polls/s.

    def __init__(self) -> None:
        self._heap: list[tuple[float, ChannelId]] = []
        self._due_s: dict[ChannelId, float] = {}

    def schedule(self, channel_id: ChannelId, due_s: float) -> None:
        """Set the time at which a channel is due, in place of an earlier setting."""
        if self._due_s.get(channel_id) != due_s:
            self._due_s[channel_id] = due_s
            heappush(self._heap, (due_s, channel_id))

    def remove(self, channel_id: ChannelId) -> None:
        """Remove a channel, so that it no longer becomes due."""
        self._due_s.pop(channel_id, None)

    def due_s(self, channel_id: ChannelId) -> float:
        """Return the time at which a channel is due; infinity if the channel is not in the queue."""
        return self._due_s.get(channel_id, inf)

    def __contains__(self, channel_id: ChannelId) -> bool:
        return channel_id in self._due_s

    def pop_due(self, until_s: float, most: float = inf) -> list[tuple[float, ChannelId]]:
        """Remove and return up to ``most`` channels that are due by ``until_s``, as pairs (due time, channel).

        The earliest is first.
        """
        due: list[tuple[float, ChannelId]] = []
        while self._heap and self._heap[0][0] <= until_s and len(due) < most:
            due_s, channel_id = heappop(self._heap)
            if self._due_s.get(channel_id) == due_s:
                del self._due_s[channel_id]
                due.append((due_s, channel_id))
        return due

    def next_s(self) -> float | None:
        """Return the due time of the first item; None if the queue is empty.

        The item may be outdated. Then no channel is due at that time.
        """
        return self._heap[0][0] if self._heap else None
