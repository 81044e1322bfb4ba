"""How much the fleet polls, from the last polls that the store keeps of each channel. Pure."""

from collections.abc import Sequence
from typing import Final

from service.model import PollResult

WINDOW_S: Final = 60.0
_SHORTEST_SPAN_S: Final = 1.0


def polls_per_minute(
    sample: Sequence[Sequence[PollResult]], kept: int, channels: int, now_s: float
) -> dict[str, float]:
    """Return polls per minute by outcome over the last ``WINDOW_S``, of all channels.

    ``sample`` holds, for a fair sample of the ``channels``, their polls newest first, of which no more
    than ``kept`` are kept: a channel polled more often than that counts over the time they cover.
    """
    rates: dict[str, float] = {}
    for polls in sample:
        recent = [poll for poll in polls if poll.at_s > now_s - WINDOW_S]
        covered_s = now_s - recent[-1].at_s if len(recent) == kept else WINDOW_S
        for poll in recent:
            rate = 60 / max(covered_s, _SHORTEST_SPAN_S) * channels / len(sample)
            rates[poll.outcome] = rates.get(poll.outcome, 0.0) + rate
    return rates


def silence_s(sample: Sequence[Sequence[PollResult]], now_s: float) -> float:
    """Return how long ago the newest poll was; 0 when there never was one."""
    return now_s - max((poll.at_s for polls in sample for poll in polls), default=now_s)
