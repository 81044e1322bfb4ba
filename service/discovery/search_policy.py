"""Search policy: how many names a search requests, and which of the results are shown.

A content name describes a channel or entry at the time of its registration, so the directory's cells and the copies in
workers' memory may be outdated. Each result is therefore checked again before it is shown: its channel must still exist
and be public, and the channel or entry must still have all AV-pairs of the query. Other results are neither shown nor
counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.channel_visibility import is_public
from service.discovery.content_names import (
    MAX_AUTHORS,
    MAX_TAGS,
    MAX_TITLE_CHARS,
    DeclaredMetadata,
    channel_attributes,
    channel_pairs,
    channel_text,
)
from service.discovery.discover_listings import NEW, novelty_weight
from service.discovery.queries.query import PairCondition, Query
from service.discovery.text_search.searchable_text import SearchableText, TextField
from service.model import Channel, ChannelId, Entry, FeedMetadata

OVERFETCH_FACTORS = (1.5, 40)
"""Multiples of the limit that are requested, one after the other, because some results may not be public any more."""
MAX_NAMES = 1_000

_MAX_FEED_TAGS = MAX_TAGS // 2
"""Maximum number of the feed's own tags, which come first; the others are those of its entries."""
_CONTENT_PREFIXES = ("tag=", "author=", "generator=", "version=", "age=")
"""Attributes whose values are only known from what a channel has published, or from when it became known."""


def channel_id_of(name: str) -> ChannelId:
    """Return the channel id in the id of a channel's or an entry's name."""
    return name.partition("/")[0]


def channel_ids_of(names: Iterable[str]) -> list[ChannelId]:
    """Return the distinct channel ids in these ids of channel names and entry names."""
    return list(dict.fromkeys(map(channel_id_of, names)))


class ChannelDescription(msgspec.Struct, frozen=True):
    """A channel's content name (its AV-pairs with their weights), and the text by whose words it is found."""

    pairs: dict[Pair, int]
    text: SearchableText


def describe_channel(
    channel: Channel, latest: Sequence[Entry], metadata: FeedMetadata, domain: str, interval_s: float, *, now_s: float
) -> ChannelDescription:
    """Return the description of a channel, whether or not it is public.

    ``latest`` are its latest entries, and ``metadata`` is its feed's metadata. ``domain`` is the registrable domain of
    its URL, and ``interval_s`` its update interval in seconds. ``now_s`` is Unix time.
    """
    often = _most_common((tag for entry in latest for tag in entry.tags), MAX_TAGS)
    traits = DeclaredMetadata(
        channel.language,
        tags=(*metadata.tags[:_MAX_FEED_TAGS], *often),
        generator=metadata.generator,
        authors=_most_common((author for entry in latest for author in entry.authors), MAX_AUTHORS),
    )
    titles = [entry.title for entry in latest]
    text, pairs = (
        channel_text(channel, traits, domain, titles),
        channel_pairs(channel, traits, domain, interval_s, titles),
    )
    if novelty := novelty_weight(now_s - channel.created_s):
        pairs[NEW] = novelty
    return ChannelDescription(pairs, text)


def text_of_named_channel(
    channel: Channel, pairs: Iterable[Pair], domain_of: Callable[[Channel], str]
) -> SearchableText:
    """Return the text of a channel with a known content name of these ``pairs``, without words of its latest entries.

    ``domain_of`` returns the registrable domain of a channel's URL.
    """

    def analyse() -> Sequence[TextField]:
        tags, authors = (
            tuple(pair.partition("=")[2] for pair in pairs if pair.startswith(prefix)) for prefix in ("tag=", "author=")
        )
        return channel_text(channel, DeclaredMetadata(channel.language, tags, authors), domain_of(channel)).fields

    host = channel.url.partition("//")[2].partition("/")[0]
    listed = (pair.partition("=")[2] for pair in pairs if pair.startswith(("tag=", "author=")))
    return SearchableText(analyse, channel.language, chain((channel.title[:MAX_TITLE_CHARS], host), listed))


def can_match(query: Query, channel: Channel, domain: str, interval_s: float) -> bool:
    """Return False if a channel cannot match a query, as far as this is known without reading the channel's entries.

    ``domain`` is the registrable domain of its URL, and ``interval_s`` its update interval in seconds.
    """
    own = channel_attributes(channel, DeclaredMetadata(channel.language), domain, interval_s)
    required = (group[0] for group in query.all_of if len(group) == 1)
    pairs = (condition.pair for condition in required if isinstance(condition, PairCondition))
    return all(pair in own for pair in pairs if not pair.startswith(_CONTENT_PREFIXES))


def public_channels(
    channels: Iterable[Channel | None], counts: Iterable[int], least_subscribers: int
) -> dict[ChannelId, Channel]:
    """Return the public channels among ``channels``, by id.

    ``channels`` may contain None for a channel that does not exist. ``counts`` has each channel's number of
    subscribers. A channel that no admin has listed is public if it has at least ``least_subscribers`` subscribers.
    """
    return {
        channel.id: channel
        for channel, count in zip(channels, counts, strict=True)
        if channel is not None and not channel.moved_to and is_public(channel, count, least_subscribers)
    }


def _most_common(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
