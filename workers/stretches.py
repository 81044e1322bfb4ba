"""Long lists of channels, cut up: what is known of all of them must never be in memory at once."""

from collections.abc import Iterator, Sequence

from service.model import ChannelId

_AT_ONCE = 500


def stretches(cids: Sequence[ChannelId]) -> Iterator[Sequence[ChannelId]]:
    """Return the same channels, in order, some hundreds at a time."""
    return (cids[start : start + _AT_ONCE] for start in range(0, len(cids), _AT_ONCE))
