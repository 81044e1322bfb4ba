"""The types of parsed search queries (:func:`service.discovery.queries.query_parser.parse_query`) and their answers.

A query is a conjunction of groups of alternative conditions, and of negated conditions: (rust or go) and async and not
ads. A condition is a word, a phrase, or an attribute-value pair (AV-pair). Words and phrases are as the user wrote
them, folded but not stemmed: ``service.discovery.text_search.query_expansion`` expands them to registered words.
"""

from datetime import date
from typing import Final

import msgspec

from service.discovery.av_pairs import ContentKind, Pair
from service.model import Channel, Entry

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 50


class WordCondition(msgspec.Struct, frozen=True, tag="word"):
    """A word of the title or the text, or a word that begins with ``word`` if ``is_prefix``.

    With ``in_title``, only words of the title count.
    """

    word: str
    is_prefix: bool = False
    in_title: bool = False


class PhraseCondition(msgspec.Struct, frozen=True, tag="phrase"):
    """These words, one directly after the other, in the title or in the text; with ``in_title``, in the title."""

    words: tuple[str, ...]
    in_title: bool = False


class PairCondition(msgspec.Struct, frozen=True, tag="pair"):
    """An attribute-value pair other than a word: ``tag=python``."""

    pair: Pair


Condition = WordCondition | PhraseCondition | PairCondition


class Query(msgspec.Struct, frozen=True):
    """A query for at most ``limit`` channels or entries, as ``about`` states.

    A result satisfies at least one condition of each group in ``all_of`` (groups are never empty), and none of the
    conditions in ``none_of``. With ``after``, the result was published on that day (UTC) or later.
    """

    about: ContentKind
    all_of: tuple[tuple[Condition, ...], ...]
    none_of: tuple[Condition, ...] = ()
    after: date | None = None
    limit: int = DEFAULT_LIMIT

    @property
    def attributes(self) -> tuple[Pair, ...]:
        """The AV-pairs that every result has, if the query is a conjunction of such pairs; otherwise empty."""
        pairs = tuple(group[0].pair for group in self.all_of if len(group) == 1 and isinstance(group[0], PairCondition))
        return pairs if len(pairs) == len(self.all_of) and not self.none_of else ()


class SearchHit(msgspec.Struct, frozen=True):
    """A search result: a channel, or an entry with its channel.

    ``snippet`` is one line of the text of the entry, or of the channel's latest entries, and ``hits`` are the
    character ranges (start, end) of the query's words in it.
    """

    channel: Channel
    entry: Entry | None = None
    own: bool = False
    """Whether the channel is not public and shown only because the user is subscribed to it."""
    subscribers: int = 0
    """Number of the channel's subscribers; 0 if the search did not read it."""
    snippet: str = ""
    hits: tuple[tuple[int, int], ...] = ()
    lacks_words: bool = False
    """Whether the result has only some of the query's words; it then comes after the results with all words."""


class Correction(msgspec.Struct, frozen=True):
    """A word of a query that no result contains as written, and the similar word that results contain instead."""

    word: str
    replacement: str


class SearchAnswer(msgspec.Struct, frozen=True):
    """The results of a query, best first, at most as many as its limit.

    ``corrections`` are the words of the query that were replaced by similar ones. ``has_more`` states whether a greater
    limit would give more results. ``total`` is the number of results, or None if only a lower bound is known.
    """

    hits: tuple[SearchHit, ...]
    corrections: tuple[Correction, ...] = ()
    has_more: bool = False
    total: int | None = None
