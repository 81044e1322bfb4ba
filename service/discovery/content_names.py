"""Content names: the attribute-value pairs (AV-pairs) that describe a channel or an entry, with their weights.

Content names are derived from the publisher's metadata and texts. Invalid values, such as an empty tag, are left out. A
name has at most ``MAX_PAIRS`` pairs, because each pair has to be registered separately.

All functions are pure. The pairs of an earlier version of a channel or entry can therefore be computed again, in order
to withdraw them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from service.discovery.av_pairs import MAX_VALUE_CHARS, UPDATE_CLASSES, Pair, make_pair
from service.discovery.text_search.query_expansion import word_pair
from service.discovery.text_search.searchable_text import SearchableText, TextField, text_field
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.feeds.canonical_urls import host_of, without_selector
from service.model import EXCERPT_CHARS, Channel, Entry

MAX_PAIRS: Final = 80
ATTRIBUTE_WEIGHT: Final = 128
"""Weight of every AV-pair whose attribute is not ``word``; replaced for channels by ``attribute_weights``."""
MAX_TAGS: Final = 8
MAX_AUTHORS: Final = 4

_DAY_S = 86_400.0
_UPDATE_CLASS_LIMITS_S: Final = (7_200.0, 2 * _DAY_S, 14 * _DAY_S, 60 * _DAY_S)
_GENERATOR = re.compile(r"(?:https?://(?:www\.)?)?([^\d/?#(,;]*[^\d/?#(,;\s.-])(?:\D*?(\d[\w.+-]{0,19}))?")
_BEFORE_VERSION = re.compile(r"\s+v(?:ersion)?$", re.IGNORECASE)
MAX_TITLE_CHARS = 1000
_USELESS_LABELS: Final = frozenset({"www", "feed", "feeds", "rss", "blog", "blogs", "news"})
"""Labels of host names that do not describe a channel."""


class DeclaredMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata that a channel's documents declare: language, categories, authors, and the generating software."""

    language: str = ""
    tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    generator: str = ""


def channel_pairs(
    channel: Channel, metadata: DeclaredMetadata, domain: str, interval_s: float, latest_titles: Iterable[str] = ()
) -> dict[Pair, int]:
    """Return the attribute-value pairs (AV-pairs) that describe a channel, each with its weight from 1 to 255.

    These are the pairs from :func:`channel_attributes`, and one pair for each word stem in :func:`channel_text`; at
    most ``MAX_PAIRS``. For the parameters, see these two functions.
    """
    attributes = channel_attributes(channel, metadata, domain, interval_s)
    return _name(attributes, channel_text(channel, metadata, domain, latest_titles))


def channel_attributes(channel: Channel, metadata: DeclaredMetadata, domain: str, interval_s: float) -> list[Pair]:
    """Return the attribute-value pairs that describe a channel, except those for words.

    - ``metadata``: the metadata that the channel's documents declare.
    - ``domain``: the registrable domain of the channel's URL.
    - ``interval_s``: the estimated time between the channel's updates in seconds.
    """
    return [
        f"type={channel.kind}",
        f"status={_status(channel)}",
        f"updates={update_class(interval_s)}",
        *_host_pairs(channel, domain),
        *language_pairs(metadata.language),
        *_generator_pairs(metadata.generator),
        *_pairs_of("tag", metadata.tags, MAX_TAGS),
        *_pairs_of("author", metadata.authors, MAX_AUTHORS),
    ]


def entry_pairs(entry: Entry, channel: Channel, metadata: DeclaredMetadata, domain: str) -> dict[Pair, int]:
    """Return the attribute-value pairs (AV-pairs) that describe an entry, each with its weight from 1 to 255.

    The pairs include the host and the language of the entry's channel.

    - ``metadata``: the metadata that the channel's documents declare.
    - ``domain``: the registrable domain of the channel's URL.
    """
    attributes = entry_attributes(entry, channel, metadata, domain)
    return _name(attributes, entry_text(entry, metadata.language))


def entry_attributes(entry: Entry, channel: Channel, metadata: DeclaredMetadata, domain: str) -> list[Pair]:
    """Return the attribute-value pairs that describe an entry, except those for words.

    - ``metadata``: the metadata that the channel's documents declare.
    - ``domain``: the registrable domain of the channel's URL.
    """
    return [
        f"channel={channel.id}",
        *_host_pairs(channel, domain),
        *language_pairs(metadata.language),
        *_pairs_of("tag", entry.tags, MAX_TAGS),
        *_pairs_of("author", entry.authors or metadata.authors, MAX_AUTHORS),
    ]


def channel_text(
    channel: Channel, metadata: DeclaredMetadata, domain: str, latest_titles: Iterable[str] = ()
) -> SearchableText:
    """Return the searchable text of a channel: its title, site, topics and authors.

    - ``metadata``: the metadata that the channel's documents declare.
    - ``domain``: the registrable domain of the channel's URL.
    - ``latest_titles``: the titles of the channel's latest entries. A word that occurs in at least two of them counts
      as a topic.
    """

    def analyse() -> tuple[TextField, ...]:
        host = host_of(without_selector(channel.url))
        labels = [label for label in host.removesuffix(domain).split(".") if label not in _USELESS_LABELS]
        return (
            text_field(channel.title[:MAX_TITLE_CHARS], boost=3.0, mean_words=5, is_title=True),
            text_field(" ".join([domain.partition(".")[0], *labels]).replace("-", " "), boost=2.0, mean_words=2),
            _list_field(metadata.tags, MAX_TAGS),
            _list_field(metadata.authors, MAX_AUTHORS),
            TextField(_recurrent_words(latest_titles), boost=1.0, mean_words=20),
        )

    return SearchableText(analyse, metadata.language)


def entry_text(entry: Entry, declared_language: str) -> SearchableText:
    """Return the searchable text of an entry: its title, topics, authors and the beginning of its summary.

    ``declared_language`` is the language tag that the channel's documents declare; "" if they declare none.
    """
    title, summary = entry.title[:MAX_TITLE_CHARS], entry.summary[:EXCERPT_CHARS]

    def analyse() -> tuple[TextField, ...]:
        return (
            text_field(title, boost=3.0, mean_words=10, is_title=True),
            _list_field(entry.tags, MAX_TAGS),
            _list_field(entry.authors, MAX_AUTHORS),
            text_field(summary, boost=1.0, mean_words=60),
        )

    source = (
        title,
        *(value[:MAX_VALUE_CHARS] for value in (*entry.tags[:MAX_TAGS], *entry.authors[:MAX_AUTHORS])),
        summary,
    )
    return SearchableText(analyse, declared_language, title, source)


def language_pairs(tag: str) -> list[Pair]:
    """Return the attribute-value pairs for a language tag (BCP 47) such as ``en``, ``en-GB`` or ``zh_Hans_CN``.

    The result is empty for an invalid tag.
    """
    language, *others = tag.strip().replace("_", "-").split("-")
    primary = _pair_or_none("lang", language)
    if primary is None:
        return []
    # A region has two letters; longer subtags are scripts or variants.
    region = next((other for other in others if len(other) == len("gb")), "")
    regional = _pair_or_none("region", region, parent=primary) if region else None
    return [primary, regional] if regional else [primary]


def update_class(interval_s: float) -> str:
    """Return the name of a channel's update frequency, such as ``daily``.

    ``interval_s`` is the mean time between the channel's updates in seconds.
    """
    return next(
        (name for name, most_s in zip(UPDATE_CLASSES, _UPDATE_CLASS_LIMITS_S, strict=False) if interval_s <= most_s),
        UPDATE_CLASSES[-1],
    )


def _status(channel: Channel) -> str:
    return channel.condition or ("dormant" if channel.dormant else "ok")


def _host_pairs(channel: Channel, domain: str) -> Iterator[Pair]:
    host = host_of(without_selector(channel.url))
    for attribute, value in (("host", host), ("domain", domain), ("tld", domain.rpartition(".")[2])):
        found = _pair_or_none(attribute, value)
        if found is not None:
            yield found


def _generator_pairs(text: str) -> list[Pair]:
    found = _GENERATOR.match(text[:200])
    # Of a URL, the name of its site.
    called = (found[1].partition(".")[0] if "://" in found[0] else _BEFORE_VERSION.sub("", found[1])) if found else ""
    name = _pair_or_none("generator", called) if called else None
    version = _pair_or_none("version", found[2], parent=name) if found and found[2] and name else None
    return [each for each in (name, version) if each is not None]


def _pairs_of(attribute: str, values: Iterable[str], most: int) -> list[Pair]:
    found = (_pair_or_none(attribute, value) for value in values if len(value) <= MAX_VALUE_CHARS)
    return list(dict.fromkeys(each for each in found if each is not None))[:most]


def _list_field(values: Iterable[str], most: int) -> TextField:
    """Return a text field that contains the words of the first ``most`` tags or authors in ``values``."""
    return text_field(" ".join(value[:MAX_VALUE_CHARS] for value in islice(values, most)), boost=1.5, mean_words=4)


def _recurrent_words(titles: Iterable[str]) -> list[str]:
    """Return the words that occur in at least two of these titles, in descending order of frequency."""
    counts = Counter(word for title in titles for word in set(words(title[:MAX_TITLE_CHARS])))
    return sorted((word for word, count in counts.items() if count > 1), key=lambda word: (-counts[word], word))


def _pair_or_none(attribute: str, value: str, *, parent: Pair = "") -> Pair | None:
    with suppress(BadQuery):
        return make_pair(attribute, value, parent=parent)
    return None


def _name(attributes: Iterable[Pair], text: SearchableText) -> dict[Pair, int]:
    weights = dict.fromkeys(attributes, ATTRIBUTE_WEIGHT)
    weights |= {word_pair(stem): weight for stem, weight in text.weights().items()}
    return dict(islice(weights.items(), MAX_PAIRS))
