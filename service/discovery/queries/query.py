"""The types of parsed search queries (:func:`service.discovery.queries.query_parser.parse_query`) and their answers.

A query is a conjunction of groups and of negated conditions, such as "(rust or go) and async and not ads". A group
consists of alternative conditions. A condition is a word, a phrase, or an attribute-value pair (AV-pair). Words and
phrases are as the user wrote them, folded (without case and accents) but not stemmed.
:mod:`service.discovery.text_search.query_expansion` expands them to stems of registered words.
"""

from datetime import date
from typing import Final

import msgspec

from service.discovery.av_pairs import ContentKind, Pair
from service.model import Channel, Entry

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 50


class WordCondition(msgspec.Struct, frozen=True, tag="word"):
    """A condition that a word occurs in the title or the text; with ``in_title``, in the title.

    With ``is_prefix``, any word that begins with ``word`` satisfies it.
    """

    word: str
    is_prefix: bool = False
    in_title: bool = False


class PhraseCondition(msgspec.Struct, frozen=True, tag="phrase"):
    """A condition that ``words`` occur in the title or the text, one directly after the other.

    With ``in_title``, they must occur in the title.
    """

    words: tuple[str, ...]
    in_title: bool = False


class PairCondition(msgspec.Struct, frozen=True, tag="pair"):
    """An attribute-value pair other than a word: ``tag=python``."""

    pair: Pair


Condition = WordCondition | PhraseCondition | PairCondition


class Query(msgspec.Struct, frozen=True):
    """A query for channels or entries, with at most ``limit`` results.

    - ``about`` is the kind of content that is searched.
    - ``all_of`` are groups of conditions. A result satisfies at least one condition of each group. No group is empty.
    - ``none_of`` are conditions that no result satisfies.
    - ``after`` is a day (UTC) or None. A result was published on that day or later.
    """

    about: ContentKind
    all_of: tuple[tuple[Condition, ...], ...]
    none_of: tuple[Condition, ...] = ()
    after: date | None = None
    limit: int = DEFAULT_LIMIT

    @property
    def attributes(self) -> tuple[Pair, ...]:
        """The AV-pairs that every result must have, if the query consists of such conditions only; otherwise empty."""
        pairs = tuple(group[0].pair for group in self.all_of if len(group) == 1 and isinstance(group[0], PairCondition))
        return pairs if len(pairs) == len(self.all_of) and not self.none_of else ()


class SearchHit(msgspec.Struct, frozen=True):
    """A search result: a channel, or an entry with its channel.

    ``snippet`` is one line from the entry's text, or from the titles of the channel's latest entries. ``hits`` are the
    character ranges (start, end) in ``snippet`` where words of the query occur.
    """

    channel: Channel
    entry: Entry | None = None
    own: bool = False
    """Whether this is a private channel, which is shown only because the user is subscribed to it."""
    subscribers: int = 0
    """Number of the channel's subscribers; 0 in searches of private channels, which do not read it."""
    snippet: str = ""
    hits: tuple[tuple[int, int], ...] = ()
    lacks_words: bool = False
    """Whether the result has only some of the query's words; it then comes after the results with all words."""


class Correction(msgspec.Struct, frozen=True):
    """A correction of a query: a word that no result contains as written, and the similar word that results contain."""

    word: str
    replacement: str


class SearchAnswer(msgspec.Struct, frozen=True):
    """The results of a query, best first, up to the query's limit.

    - ``corrections`` are the words of the query that were replaced by similar ones.
    - ``has_more`` states whether a higher limit would give more results.
    - ``total`` is the number of all results, or None if not all matching names were examined.
    """

    hits: tuple[SearchHit, ...]
    corrections: tuple[Correction, ...] = ()
    has_more: bool = False
    total: int | None = None
