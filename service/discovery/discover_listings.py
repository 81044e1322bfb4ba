"""Browsing without a query: the most popular and the newest public channels, by language and topic.

A listing is a search for the attribute-value pair ``WORKING`` (for popular channels) or ``NEW`` (for new ones). Each
channel is registered with a weight for each of its pairs, and the search returns the channels with the greatest
weights:

- Every working channel has the pair ``WORKING`` (``status=ok``). Its weight grows with the number of subscribers.
- Every channel added within the last ``NEW_S`` seconds has the pair ``NEW`` (``age=new``). The newer the channel, the
  greater the weight.

Weights are coarse and may be outdated. A listing therefore reads more channels than it shows, checks each of them
again, and sorts them by exact values.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from math import log2
from typing import Final, Literal

import msgspec

from service.discovery.av_pairs import Pair, attribute_of, make_pair
from service.discovery.content_names import language_pairs
from service.discovery.queries.query import SearchHit
from service.model import Channel

DiscoverOrder = Literal["popular", "new"]
"""The orders of a listing: most subscribers first (``popular``), or newest first (``new``)."""

WORKING: Final[Pair] = "status=ok"
"""The AV-pair of channels that work."""
NEW: Final[Pair] = "age=new"
"""The AV-pair of channels that were added within the last ``NEW_S`` seconds."""
NEW_S: Final = 30 * 86_400.0
MAX_CANDIDATES: Final = 200
"""Number of channels that are examined for one listing."""
MAX_ATTRIBUTE_WEIGHT: Final = 64
"""Greatest weight of a channel's AV-pair whose attribute is not ``word``; words of a title weigh more."""

_MAX_LANGUAGES: Final = 8
_MAX_TOPICS: Final = 12
_WEIGHT_STEPS: Final = 3
"""Amount by which the weight of a channel's attributes grows with each doubling of its number of subscribers."""


class Facet(msgspec.Struct, frozen=True):
    """A language or topic by which a listing can be narrowed.

    ``channels`` is the number of examined channels with this language or topic.
    """

    value: str
    channels: int


class DiscoverAnswer(msgspec.Struct, frozen=True):
    """A listing of public channels, with the languages and topics by which it can be narrowed.

    - ``hits``: the channels.
    - ``languages``, ``topics``: the languages and topics that occur most often among the examined channels.
    - ``has_more``: whether there are more channels than the caller requested.
    """

    hits: tuple[SearchHit, ...]
    languages: tuple[Facet, ...]
    topics: tuple[Facet, ...]
    has_more: bool


class DiscoverCandidate(msgspec.Struct, frozen=True):
    """A public channel, its number of subscribers, and its attribute-value pairs."""

    channel: Channel
    subscribers: int
    pairs: AbstractSet[Pair]


def popularity_weight(subscribers: int) -> int:
    """Return the weight of the attribute-value pairs of a channel that has ``subscribers`` subscribers.

    The weight is from 1 to ``MAX_ATTRIBUTE_WEIGHT``, and grows with the number of subscribers.
    """
    return min(1 + int(_WEIGHT_STEPS * log2(1 + max(subscribers, 0))), MAX_ATTRIBUTE_WEIGHT)


def novelty_weight(age_s: float) -> int:
    """Return the weight of the attribute-value pair ``NEW`` for a channel that was added ``age_s`` seconds ago.

    The weight falls from ``MAX_ATTRIBUTE_WEIGHT`` to 1 with the channel's age. At an age of ``NEW_S`` seconds or more,
    it is 0.
    """
    if age_s >= NEW_S:
        return 0
    return 1 + int((MAX_ATTRIBUTE_WEIGHT - 1) * (1 - max(age_s, 0.0) / NEW_S))


def attribute_weights(pairs: Iterable[Pair], subscribers: int, age_s: float) -> dict[Pair, int]:
    """Return the weights of a channel's attribute-value pairs, by which listings select and sort channels.

    - ``pairs``: all pairs of the channel. The result does not contain pairs for words.
    - ``subscribers``: the channel's number of subscribers. It determines the weights of all pairs except ``NEW``.
    - ``age_s``: the number of seconds since the channel was added. It determines the weight of ``NEW``.
    """
    popularity, novelty = popularity_weight(subscribers), max(novelty_weight(age_s), 1)
    return {pair: novelty if pair == NEW else popularity for pair in pairs if attribute_of(pair) != "word"}


def discover_pairs(order: DiscoverOrder, language: str = "", topic: str = "") -> tuple[Pair, ...]:
    """Return the attribute-value pairs that a channel must have to be included in a listing of the kind ``order``.

    If ``language`` or ``topic`` is not empty, the listing contains only channels in this language or on this topic.

    Raises :class:`service.errors.BadQuery` if the language or the topic is invalid.
    """
    pairs = [WORKING]
    if order == "new":
        pairs.append(NEW)
    if language:
        pairs += language_pairs(language) or [make_pair("lang", language)]
    if topic:
        pairs.append(make_pair("tag", topic))
    return tuple(pairs)


def arrange_listing(
    order: DiscoverOrder, pairs: Iterable[Pair], candidates: Iterable[DiscoverCandidate], limit: int
) -> DiscoverAnswer:
    """Return a listing of candidates that have all attribute-value pairs in ``pairs``, at most ``limit`` of them.

    If ``order`` is "new", the newest channels come first, otherwise the channels with the most subscribers.
    Channels of equal rank are sorted by id.
    """
    required = frozenset(pairs)
    listed = sorted((each for each in candidates if required <= each.pairs), key=lambda each: each.channel.id)
    listed.sort(key=lambda each: each.channel.created_s if order == "new" else each.subscribers, reverse=True)
    return DiscoverAnswer(
        tuple(SearchHit(each.channel, subscribers=each.subscribers) for each in listed[:limit]),
        _facets("lang=", listed, _MAX_LANGUAGES),
        _facets("tag=", listed, _MAX_TOPICS),
        len(listed) > limit,
    )


def _facets(prefix: str, listed: Sequence[DiscoverCandidate], most: int) -> tuple[Facet, ...]:
    found = Counter(pair.removeprefix(prefix) for each in listed for pair in each.pairs if pair.startswith(prefix))
    frequent = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Facet(value, channels) for value, channels in frequent[:most])
