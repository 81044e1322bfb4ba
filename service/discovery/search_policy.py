"""Search policy: how many names are asked for, which of those that were found are shown, and what channels are named.

A name says what was true when it was registered; shares in workers' memory, and cells, may be behind. So each one that
is shown is checked again: its channel is still there, and public, and it, or the entry, still has all that was asked
for. Whatever fails that is neither shown nor counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from service.discovery.av_pairs import Pair
from service.discovery.names import MAX_AUTHORS, MAX_TAGS, DeclaredMetadata, channel_pairs, entry_pairs
from service.discovery.query_parser import Query, SearchHit
from service.discovery.visibility import is_public
from service.model import Channel, ChannelId, Entry, FeedMetadata

OVERFETCH_FACTORS = (2, 40)
"""How many times the wanted names are asked for, in turn: some may not be public any more; rarely, most are not."""
MAX_NAMES = 1_000

_MAX_FEED_TAGS = MAX_TAGS // 2
"""What a feed says of itself comes first, but leaves room for what its entries say."""
_CONTENT_PREFIXES = ("tag=", "author=", "generator=", "version=")
"""Pairs that only follow from what a channel has published."""


def entry_name(cid: ChannelId, version: int, position: int) -> str:
    """Return the id of an entry's name: where in its channel's log it stands."""
    return f"{cid}/{version}/{position}"


def parse_entry_name(name: str) -> tuple[ChannelId, int, int]:
    """Return the channel, the version and the position of an entry's name."""
    cid, version, position = name.split("/")
    return cid, int(version), int(position)


def channel_ids_of(names: Iterable[str]) -> list[ChannelId]:
    """Return the channels that these names of channels or entries are of, each once."""
    return list(dict.fromkeys(name.partition("/")[0] for name in names))


def build_channel_name(
    channel: Channel, latest: Sequence[Entry], imprint: FeedMetadata, domain: str, interval_s: float
) -> frozenset[Pair]:
    """Return a channel's name, public or not, as its documents and its ``latest`` entries make it.

    ``domain`` is the registrable domain of its URL, ``interval_s`` how often it is updated.
    """
    often = _most_common((tag for entry in latest for tag in entry.tags), MAX_TAGS)
    traits = DeclaredMetadata(
        channel.language,
        tags=(*imprint.tags[:_MAX_FEED_TAGS], *often),
        generator=imprint.generator,
        authors=_most_common((author for entry in latest for author in entry.authors), MAX_AUTHORS),
    )
    return frozenset(channel_pairs(channel, traits, domain, interval_s))


def can_match(query: Query, channel: Channel, domain: str, interval_s: float) -> bool:
    """Say whether a channel has those of the query's pairs that are known without reading what it has published."""
    own = frozenset(channel_pairs(channel, DeclaredMetadata(channel.language), domain, interval_s))
    return own.issuperset(pair for pair in query.pairs if not pair.startswith(_CONTENT_PREFIXES))


def public_channels(
    channels: Iterable[Channel | None], counts: Iterable[int], least_subscribers: int
) -> dict[ChannelId, Channel]:
    """Return those of the channels, with so many subscribers each, that are anybody's business."""
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
    """Return the public channels whose present names match, in the order of ``names``."""
    return [SearchHit(public[cid]) for cid, pairs in names.items() if cid in public and query.matches(pairs)]


def matching_entry(query: Query, channel: Channel, entry: Entry, domain: str) -> list[SearchHit]:
    """Return an entry of a public channel, if it matches."""
    pairs = frozenset(entry_pairs(entry, channel, DeclaredMetadata(channel.language), domain))
    return [SearchHit(channel, entry)] if query.matches(pairs) else []


def _most_common(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
