"""Search policy: the number of names that a search requests, and the conditions for showing a result.

A content name describes a channel or entry at the time of its registration, so the directory's cells and the copies in
workers' memory may be outdated. Each result is therefore checked again before it is shown: its channel must still exist
and be public, and the channel or entry must still have all AV-pairs of the query. Other results are neither shown nor
counted.
"""

from collections.abc import Iterable

from service.discovery.content_names import (
    DeclaredMetadata,
    channel_attributes,
)
from service.discovery.queries.query import PairCondition, Query
from service.model import Channel, ChannelId

OVERFETCH_FACTORS = (1.5, 40)
"""Candidates to read per result to show, since some may not be public; the second number if too few are."""
MAX_NAMES = 1_000

_CONTENT_PREFIXES = ("tag=", "author=", "generator=", "version=", "age=")
"""Prefixes of the AV-pairs that depend on a channel's documents, or on the time at which it was added."""


def channel_id_of(name: str) -> ChannelId:
    """Return the channel id in ``name``, the id of a channel's or an entry's content name."""
    return name.partition("/")[0]


def channel_ids_of(names: Iterable[str]) -> list[ChannelId]:
    """Return the distinct channel ids in these ids of channel names and entry names."""
    return list(dict.fromkeys(map(channel_id_of, names)))


def can_match(query: Query, channel: Channel, domain: str, interval_s: float) -> bool:
    """Return whether a channel may match a query, without reading the channel's entries.

    False is certain. True only means that the channel's content has to be examined. ``domain`` is the registrable
    domain of the channel's URL, and ``interval_s`` its update interval in seconds.
    """
    own = channel_attributes(channel, DeclaredMetadata(channel.language), domain, interval_s)
    required = (group[0] for group in query.all_of if len(group) == 1)
    pairs = (condition.pair for condition in required if isinstance(condition, PairCondition))
    return all(pair in own for pair in pairs if not pair.startswith(_CONTENT_PREFIXES))
