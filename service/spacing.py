"""How far apart it is that a person is told of one channel: at most once in an interval of their own choice. Pure.

What comes after a quiet time is told at once; what follows sooner than the interval waits for its end, together.
How often the channel is looked at does not follow from it: that is shared out among everybody's channels.
"""

from typing import Final

LEAST_S: Final = 60
MOST_S: Final = 7 * 86_400
DIGEST_TAKES_S: Final = 600
"""So late a digest's message may be; the next one is not to wait a whole round for that."""


def free_s(queued_s: float, told_s: float | None, interval_s: float) -> float:
    """Return from when on something of a channel may be told that was queued at ``queued_s`` (all Unix s).

    ``told_s`` is when something of the channel was told last, None for never: what was queued by then and had no room
    in that message is a part of the same telling.
    """
    if told_s is None or queued_s <= told_s:
        return queued_s
    return max(queued_s, told_s + interval_s)
