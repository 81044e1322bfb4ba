"""A priority queue of channels, ordered by due time; used for polls and for registrations."""

from heapq import heappop, heappush
from math import inf

from service.model import ChannelId


class DueQueue:
    """A priority queue of channels, ordered by due time. The caller chooses which clock the times refer to."""

    # The queue is a heap, in which an outdated entry stays until it becomes the first. A heap costs a few microseconds
    # per poll for any number of channels; one interval job per channel would cost a fifth of a core at 1,000 polls/s.

    def __init__(self) -> None:
        self._heap: list[tuple[float, ChannelId]] = []
        self._due_s: dict[ChannelId, float] = {}

    def schedule(self, channel_id: ChannelId, due_s: float) -> None:
        """Set the time at which a channel is due, replacing any earlier time."""
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
        """Remove and return up to ``most`` channels that are due by ``until_s``, earliest first.

        Each item is a pair (due time, channel).
        """
        due: list[tuple[float, ChannelId]] = []
        while self._heap and self._heap[0][0] <= until_s and len(due) < most:
            due_s, channel_id = heappop(self._heap)
            if self._due_s.get(channel_id) == due_s:
                del self._due_s[channel_id]
                due.append((due_s, channel_id))
        return due

    def next_s(self) -> float | None:
        """Return a time before which no channel is due; None if the queue is empty.

        Usually, this is when the next channel is due. It may be earlier if a channel was rescheduled or removed.
        """
        return self._heap[0][0] if self._heap else None
