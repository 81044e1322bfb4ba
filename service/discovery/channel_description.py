"""Descriptions of channels for searches: their attribute-value pairs, and their searchable text."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.content_names import (
    MAX_AUTHORS,
    MAX_PAIRS,
    MAX_TAGS,
    MAX_TITLE_CHARS,
    DeclaredMetadata,
    channel_pairs,
    channel_text,
)
from service.discovery.discover_listings import NEW, novelty_weight
from service.discovery.text_search.query_expansion import word_pair
from service.discovery.text_search.searchable_text import MAX_TEXT_STEMS, SearchableText, TextField
from service.model import Channel, Entry, FeedMetadata

_MAX_FEED_TAGS = MAX_TAGS // 2
"""Maximum number of tags taken from the feed itself; the other tags are taken from its entries."""
_WORD = word_pair("")
"""The beginning of the attribute-value pairs of stems."""


class ChannelDescription(msgspec.Struct, frozen=True):
    """The description of a channel by which searches find the channel.

    - ``pairs``: the channel's attribute-value pairs, each with its weight.
    - ``text``: the text that is searched for the words of a query.
    """

    pairs: dict[Pair, int]
    text: SearchableText


def describe_channel(
    channel: Channel, latest: Sequence[Entry], metadata: FeedMetadata, domain: str, interval_s: float, *, now_s: float
) -> ChannelDescription:
    """Return a channel's description for searches, regardless of whether the channel is public.

    - ``latest``: the channel's latest entries.
    - ``metadata``: the metadata of the channel's feed.
    - ``domain``: the registrable domain of the channel's URL.
    - ``interval_s``: the time between the channel's updates in seconds.
    - ``now_s``: the present Unix time.
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
    channel: Channel, pairs: Collection[Pair], domain_of: Callable[[Channel], str]
) -> SearchableText:
    """Return the searchable text of a registered channel without reading its entries.

    The words of the latest entries are therefore missing from the text.

    - ``pairs``: the attribute-value pairs with which the channel is registered. The channel's tags and authors are
      taken from these pairs.
    - ``domain_of``: function that returns the registrable domain of a channel's URL.
    """
    title = channel.title[:MAX_TITLE_CHARS]

    def analyse() -> Sequence[TextField]:
        tags, authors = (
            tuple(pair.partition("=")[2] for pair in pairs if pair.startswith(prefix)) for prefix in ("tag=", "author=")
        )
        return channel_text(channel, DeclaredMetadata(channel.language, tags, authors), domain_of(channel)).fields

    def source() -> Iterator[str]:
        yield title
        yield channel.url.partition("//")[2].partition("/")[0]
        yield from (pair.partition("=")[2] for pair in pairs if pair.startswith(("tag=", "author=")))

    def has_unregistered_stems() -> bool:
        # Counting in one string takes less time than examining each pair.
        return not 0 < len(pairs) < MAX_PAIRS or "\n".join(pairs).count(_WORD) > MAX_TEXT_STEMS

    return SearchableText(analyse, channel.language, title, source(), has_unregistered_stems)


def _most_common(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
