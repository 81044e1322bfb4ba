"""The types of parsed search queries and their answers.

A query such as "(rust or go) and async and not ads" consists of *groups* and of excluded conditions. A group is a set
of alternative conditions. A result must satisfy at least one condition of each group. A condition is a word, a phrase,
or an attribute-value pair.

:func:`service.discovery.queries.query_parser.parse_query` parses a text into a query. Words and phrases are kept as the
user wrote them, except that they are folded (case and accents are removed). They are not stemmed.
:mod:`service.discovery.text_search.query_expansion` finds the stems.
"""

from datetime import date
from typing import Final

import msgspec

from service.discovery.av_pairs import ContentKind, Pair
from service.model import Channel, Entry

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 50


class WordCondition(msgspec.Struct, frozen=True, tag="word"):
    """The condition that a word occurs in the title or the text.

    - ``is_prefix``: whether any word that begins with ``word`` satisfies the condition.
    - ``in_title``: whether the word must occur in the title.
    """

    word: str
    is_prefix: bool = False
    in_title: bool = False


class PhraseCondition(msgspec.Struct, frozen=True, tag="phrase"):
    """The condition that ``words`` occur in the title or the text, one directly after another.

    If ``in_title`` is true, the words must occur in the title.
    """

    words: tuple[str, ...]
    in_title: bool = False


class PairCondition(msgspec.Struct, frozen=True, tag="pair"):
    """The condition that a result has a certain attribute-value pair, such as ``tag=python``.

    For words, use :class:`WordCondition` instead. Filters of subscriptions also have the pairs ``link=value`` and
    ``text=value``, which an entry has if its link or its text, without the title, contains the value.
    """

    pair: Pair


Condition = WordCondition | PhraseCondition | PairCondition


class Query(msgspec.Struct, frozen=True):
    """A query for channels or entries, with at most ``limit`` results.

    - ``about``: the kind of content to search.
    - ``all_of``: groups of alternative conditions. A result must satisfy at least one condition of each group. No group
      is empty.
    - ``none_of``: conditions that a result must not satisfy.
    - ``after``: if not None, results must have been published on this day (UTC) or later.
    """

    about: ContentKind
    all_of: tuple[tuple[Condition, ...], ...]
    none_of: tuple[Condition, ...] = ()
    after: date | None = None
    limit: int = DEFAULT_LIMIT

    @property
    def attributes(self) -> tuple[Pair, ...]:
        """The attribute-value pairs that results must have, if the query consists only of such pairs; empty otherwise.

        The result is also empty if the query contains alternatives or excludes anything.
        """
        pairs = tuple(group[0].pair for group in self.all_of if len(group) == 1 and isinstance(group[0], PairCondition))
        return pairs if len(pairs) == len(self.all_of) and not self.none_of else ()


class SearchHit(msgspec.Struct, frozen=True):
    """A search result: a channel, or an entry with its channel.

    - ``own``: whether the channel is private and shown only because the user is subscribed to it.
    - ``subscribers``: the number of the channel's subscribers, or 0 if the search did not read it.
    - ``snippet``: one line from the entry's text, or from the titles of the channel's latest entries.
    - ``hits``: the character ranges (start, end) in ``snippet`` where words of the query occur.
    - ``lacks_words``: whether the result lacks some of the query's words.
    """

    channel: Channel
    entry: Entry | None = None
    own: bool = False
    """Whether this is a private channel, which is shown only because the user is subscribed to it."""
    subscribers: int = 0
    """Number of the channel's subscribers. It is 0 in searches of private channels, which do not read the number."""
    snippet: str = ""
    hits: tuple[tuple[int, int], ...] = ()
    lacks_words: bool = False
    """Whether the result has only some of the query's words.

    Such a result comes after the results with all words.
    """


class Correction(msgspec.Struct, frozen=True):
    """A correction to a query: a word that occurs in no result, and the similar word that replaces it."""

    word: str
    replacement: str


class SearchAnswer(msgspec.Struct, frozen=True):
    """The results of a query, best first, up to the query's limit.

    - ``corrections``: the words of the query that were replaced with similar ones.
    - ``has_more``: whether a higher limit would give more results.
    - ``total``: the number of all results, or None if not all matching documents were examined.
    """

    hits: tuple[SearchHit, ...]
    corrections: tuple[Correction, ...] = ()
    has_more: bool = False
    total: int | None = None
