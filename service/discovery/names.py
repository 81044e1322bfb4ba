"""Content names: the AV-pairs of channels and of entries, from what publishers write.

A publisher's value that is none (a language that is no code, an empty tag) is left out, and whatever they write there
are at most ``MOST_PAIRS`` pairs: a name costs a registration for each.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from service.discovery.av_pairs import MAX_VALUE_CHARS, PACES, Pair, pair, words
from service.errors import BadQuery
from service.feeds.urls import host_of, without_selector
from service.model import Channel, Entry

MOST_PAIRS: Final = 48
MOST_TITLE_WORDS: Final = 16
MOST_TAGS: Final = 8
MOST_AUTHORS: Final = 4

_DAY_S = 86_400.0
_PACE_UP_TO_S: Final = (7_200.0, 2 * _DAY_S, 14 * _DAY_S, 60 * _DAY_S)
_GENERATOR = re.compile(r"(?:https?://(?:www\.)?)?([^\d/?#(,;]*[^\d/?#(,;\s.-])(?:\D*?(\d[\w.+-]{0,19}))?")
_BEFORE_VERSION = re.compile(r"\s+v(?:ersion)?$", re.IGNORECASE)
_TITLE_CHARS = 1000


class Traits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a channel's documents say of it, as they say it: a language tag, categories, authors, its software."""

    language: str = ""
    tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    generator: str = ""


def channel_pairs(channel: Channel, traits: Traits, domain: str, interval_s: float) -> tuple[Pair, ...]:
    """Return a channel's name.

    ``domain`` is the registrable domain of its URL; ``interval_s`` the time between its updates, as far as is known.
    """
    return _bounded(
        [
            f"type={channel.kind}",
            f"status={_status(channel)}",
            f"updates={pace(interval_s)}",
            *_places(channel, domain),
            *language_pairs(traits.language),
            *_generator(traits.generator),
            *_each("tag", traits.tags, MOST_TAGS),
            *_each("author", traits.authors, MOST_AUTHORS),
            *_title(channel.title),
        ]
    )


def entry_pairs(entry: Entry, channel: Channel, traits: Traits, domain: str) -> tuple[Pair, ...]:
    """Return an entry's name: its own pairs, and those of its channel by which people tell where it is from."""
    return _bounded(
        [
            f"channel={channel.id}",
            *_places(channel, domain),
            *language_pairs(traits.language),
            *_each("tag", entry.tags, MOST_TAGS),
            *_each("author", entry.authors or traits.authors, MOST_AUTHORS),
            *_title(entry.title),
        ]
    )


def language_pairs(tag: str) -> list[Pair]:
    """Return the pairs of a language tag (BCP 47) as ``en``, ``en-GB``, ``zh_Hans_CN``; none if it is no such tag."""
    language, *others = tag.strip().replace("_", "-").split("-")
    primary = _offered("lang", language)
    if primary is None:
        return []
    # A region has two letters; what is longer is a script or a variant.
    region = next((other for other in others if len(other) == len("gb")), "")
    regional = _offered("region", region, parent=primary) if region else None
    return [primary, regional] if regional else [primary]


def pace(interval_s: float) -> str:
    """Return the class of a mean time between updates."""
    return next((name for name, most_s in zip(PACES, _PACE_UP_TO_S, strict=False) if interval_s <= most_s), PACES[-1])


def _status(channel: Channel) -> str:
    return channel.condition or ("dormant" if channel.dormant else "ok")


def _places(channel: Channel, domain: str) -> Iterator[Pair]:
    host = host_of(without_selector(channel.url))
    for attribute, value in (("host", host), ("domain", domain), ("tld", domain.rpartition(".")[2])):
        found = _offered(attribute, value)
        if found is not None:
            yield found


def _generator(text: str) -> list[Pair]:
    found = _GENERATOR.match(text[:200])
    # Of a URL, what its site is called.
    called = (found[1].partition(".")[0] if "://" in found[0] else _BEFORE_VERSION.sub("", found[1])) if found else ""
    name = _offered("generator", called) if called else None
    version = _offered("version", found[2], parent=name) if found and found[2] and name else None
    return [each for each in (name, version) if each is not None]


def _each(attribute: str, values: Iterable[str], most: int) -> list[Pair]:
    found = (_offered(attribute, value) for value in values if len(value) <= MAX_VALUE_CHARS)
    return list(dict.fromkeys(each for each in found if each is not None))[:most]


def _title(title: str) -> list[Pair]:
    return [f"word={word}" for word in list(dict.fromkeys(words(title[:_TITLE_CHARS])))[:MOST_TITLE_WORDS]]


def _offered(attribute: str, value: str, *, parent: Pair = "") -> Pair | None:
    with suppress(BadQuery):
        return pair(attribute, value, parent=parent)
    return None


def _bounded(pairs: list[Pair]) -> tuple[Pair, ...]:
    return tuple(dict.fromkeys(pairs))[:MOST_PAIRS]
