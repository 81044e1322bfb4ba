"""Search policy: how many names a search requests, and which of the results are shown.

A content name describes a channel or entry at the time of its registration, so the directory's cells and the copies in
workers' memory may be outdated. Each result is therefore checked again before it is shown: its channel must still exist
and be public, and the channel or entry must still have all AV-pairs of the query. Other results are neither shown nor
counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from service.discovery.av_pairs import Pair
from service.discovery.discover import NEW, novelty_weight
from service.discovery.names import MAX_AUTHORS, MAX_TAGS, DeclaredMetadata, channel_pairs, entry_pairs
from service.discovery.query import Query, SearchHit
from service.discovery.visibility import is_public
from service.model import Channel, ChannelId, Entry, FeedMetadata

OVERFETCH_FACTORS = (2, 40)
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


def build_channel_name(
    channel: Channel, latest: Sequence[Entry], metadata: FeedMetadata, domain: str, interval_s: float, *, now_s: float
) -> frozenset[Pair]:
    """Return a channel's content name (its set of AV-pairs), whether or not the channel is public.

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
    pairs = frozenset(channel_pairs(channel, traits, domain, interval_s))
    return pairs | {NEW} if novelty_weight(now_s - channel.created_s) else pairs


def can_match(query: Query, channel: Channel, domain: str, interval_s: float) -> bool:
    """Return False if a channel cannot match a query, as far as this is known without reading the channel's entries.

    ``domain`` is the registrable domain of its URL, and ``interval_s`` its update interval in seconds.
    """
    own = frozenset(channel_pairs(channel, DeclaredMetadata(channel.language), domain, interval_s))
    return own.issuperset(pair for pair in query.pairs if not pair.startswith(_CONTENT_PREFIXES))


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
        if channel is not None
        and not channel.moved_to
        and is_public(channel.url, count, listed=channel.listed, least_subscribers=least_subscribers)
    }


def matching_channels(
    query: Query, public: Mapping[ChannelId, Channel], names: Mapping[ChannelId, frozenset[Pair]]
) -> list[SearchHit]:
    """Return the public channels whose current names match the query, in the order of ``names``.

    ``public`` has the public channels, and ``names`` the channels' current content names (sets of AV-pairs), both by
    channel id.
    """
    return [SearchHit(public[cid]) for cid, pairs in names.items() if cid in public and query.matches(pairs)]


def matching_entry(query: Query, channel: Channel, entry: Entry, domain: str) -> list[SearchHit]:
    """Return a list with an entry of a public channel if the entry matches the query, else an empty list.

    ``domain`` is the registrable domain of the channel's URL.
    """
    pairs = frozenset(entry_pairs(entry, channel, DeclaredMetadata(channel.language), domain))
    return [SearchHit(channel, entry)] if query.matches(pairs) else []


def _most_common(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
