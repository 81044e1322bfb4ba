"""Which channels told the same article in one batch, and were left out for it. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from bots.notifications import ArticleKey
from service.feeds.parts import marks
from service.model import ChannelId, Delta


def told_elsewhere(told: Sequence[Delta], left_out: Sequence[Delta]) -> dict[ArticleKey, list[ChannelId]]:
    """Return, for each article that is told, the channels of which the same one is left out."""
    tellers = {
        mark: (delta.channel, change.entry.key)
        for delta in told
        for change in delta.changes
        for mark in marks(change.entry)
    }
    found: defaultdict[ArticleKey, list[ChannelId]] = defaultdict(list)
    for delta in left_out:
        for change in delta.changes:
            keys = dict.fromkeys(tellers[mark] for mark in marks(change.entry) if mark in tellers)
            for key in keys:
                if delta.channel not in found[key] and delta.channel != key[0]:
                    found[key].append(delta.channel)
    return dict(found)
