"""Content names: the sets of AV-pairs of channels and entries, built from what publishers write.

Invalid values (a language that is no code, an empty tag) are left out, and a name has at most ``MAX_PAIRS`` pairs,
because each costs a registration.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from service.discovery.av_pairs import MAX_VALUE_CHARS, UPDATE_CLASSES, Pair, make_pair
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.feeds.urls import host_of, without_selector
from service.model import Channel, Entry

MAX_PAIRS: Final = 48
MAX_TITLE_WORDS: Final = 16
MAX_TAGS: Final = 8
MAX_AUTHORS: Final = 4

_DAY_S = 86_400.0
_UPDATE_CLASS_LIMITS_S: Final = (7_200.0, 2 * _DAY_S, 14 * _DAY_S, 60 * _DAY_S)
_GENERATOR = re.compile(r"(?:https?://(?:www\.)?)?([^\d/?#(,;]*[^\d/?#(,;\s.-])(?:\D*?(\d[\w.+-]{0,19}))?")
_BEFORE_VERSION = re.compile(r"\s+v(?:ersion)?$", re.IGNORECASE)
_TITLE_CHARS = 1000


class DeclaredMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata that a channel's documents declare: a language tag, categories, authors, and the generating software."""

    language: str = ""
    tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    generator: str = ""


def channel_pairs(channel: Channel, traits: DeclaredMetadata, domain: str, interval_s: float) -> tuple[Pair, ...]:
    """Return a channel's content name: its set of AV-pairs.

    ``traits`` is the metadata that its documents declare, ``domain`` is the registrable domain of its URL, and
    ``interval_s`` is the estimated time between its updates in seconds.
    """
    return _limit_pairs(
        [
            f"type={channel.kind}",
            f"status={_status(channel)}",
            f"updates={update_class(interval_s)}",
            *_host_pairs(channel, domain),
            *language_pairs(traits.language),
            *_generator_pairs(traits.generator),
            *_pairs_of("tag", traits.tags, MAX_TAGS),
            *_pairs_of("author", traits.authors, MAX_AUTHORS),
            *_title_pairs(channel.title),
        ]
    )


def entry_pairs(entry: Entry, channel: Channel, traits: DeclaredMetadata, domain: str) -> tuple[Pair, ...]:
    """Return an entry's content name: its own AV-pairs, and those of its channel's location and language.

    ``traits`` is the metadata that the documents of its channel declare, and ``domain`` is the registrable domain of
    its channel's URL.
    """
    return _limit_pairs(
        [
            f"channel={channel.id}",
            *_host_pairs(channel, domain),
            *language_pairs(traits.language),
            *_pairs_of("tag", entry.tags, MAX_TAGS),
            *_pairs_of("author", entry.authors or traits.authors, MAX_AUTHORS),
            *_title_pairs(entry.title),
        ]
    )


def language_pairs(tag: str) -> list[Pair]:
    """Return the AV-pairs of a language tag (BCP 47) such as ``en``, ``en-GB`` or ``zh_Hans_CN``.

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
    """Return the name of a class of update frequency, such as ``daily``.

    ``interval_s`` is the mean time between updates.
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


def _title_pairs(title: str) -> list[Pair]:
    return [f"word={word}" for word in list(dict.fromkeys(words(title[:_TITLE_CHARS])))[:MAX_TITLE_WORDS]]


def _pair_or_none(attribute: str, value: str, *, parent: Pair = "") -> Pair | None:
    with suppress(BadQuery):
        return make_pair(attribute, value, parent=parent)
    return None


def _limit_pairs(pairs: list[Pair]) -> tuple[Pair, ...]:
    return tuple(dict.fromkeys(pairs))[:MAX_PAIRS]
