"""AV-pairs: an attribute with a value, such as ``tag=python`` (Gao & Steenkiste §II.A).

AV-pairs describe channels and entries, and queries consist of them. Two pairs are equal if and only if their texts are
equal.

- An *orthogonal* attribute is meaningful by itself: ``tag=python``.
- A *dependent* attribute is meaningful only with its parent: ``region=gb of lang=en``. The two are hashed together.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from service.discovery.word_analysis import INVISIBLE, fold, fold_case, is_distinctive, words
from service.errors import BadQuery, BadUrl
from service.feeds.canonical_urls import canonical_url, channel_id, host_of

ContentKind = Literal["channel", "entry"]
"""The kinds of content. Each has a directory of its own, so that a search for channels need not filter entries."""

Pair = str
"""An AV-pair as text of at most 250 characters.

The text is ``attribute=value``, or ``attribute=value of parent=value`` for an attribute that depends on another. Values
of dependent attributes contain no spaces, so the text is unambiguous.
"""

MAX_VALUE_CHARS: Final = 100
MAX_URL_CHARS: Final = 2000
"""Maximum length of a URL that people write as the value of the attribute ``channel``.

The AV-pair has the channel's id in place of the URL.
"""

KINDS: Final = ("feed", "page")
STATUSES: Final = ("ok", "dead", "quarantined", "refused", "dormant")
AGES: Final = ("new",)
UPDATE_CLASSES: Final = ("hourly", "daily", "weekly", "monthly", "rarely")
"""Classes of update frequency, beginning with the highest frequency.

A channel belongs to the first class whose limit its update interval does not exceed: two hours, two days, two weeks or
two months. Channels with longer intervals are ``rarely``.
"""

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_REGION = re.compile(r"[a-z0-9]{2,8}")
_VERSION = re.compile(r"[0-9][0-9a-z.+-]{0,19}")


class Attribute(msgspec.Struct, frozen=True):
    """An attribute that channels or entries can have, such as ``tag`` or ``lang``.

    - ``meaning``: a description of the attribute for users.
    - ``kinds``: the kinds of content (channel, entry) that can have the attribute.
    - ``parent``: the name of the attribute on which this one depends; "" if it depends on none.
    - ``single``: whether a channel or entry has at most one value of the attribute.
    - ``normalize``: function that converts a value written by a person to its canonical form, or raises
      :class:`BadQuery`.
    """

    name: str
    meaning: str
    normalize: Callable[[str], str]
    kinds: frozenset[ContentKind]
    parent: str = ""
    single: bool = True


def make_pair(attribute: str, value: str, *, parent: Pair = "") -> Pair:
    """Return the AV-pair ``attribute=value`` for a value that a person has written.

    ``attribute`` is the name of an attribute. If it depends on another attribute, ``parent`` is the AV-pair of that
    attribute.

    Raises :class:`BadQuery` for an unknown attribute or an invalid value. The error's text tells the user what is
    valid.
    """
    known = ATTRIBUTES.get(attribute)
    if known is None:
        known_names = ", ".join(ATTRIBUTES)
        raise BadQuery(
            "There is no attribute “{name}”. You can use {known}.", name=printable(attribute), known=known_names
        )
    if known.parent and not parent.startswith(f"{known.parent}="):
        raise BadQuery("“{name}” only works together with “{parent}”: give both.", name=attribute, parent=known.parent)
    own = f"{attribute}={known.normalize(_check_value(attribute, value))}"
    return f"{own} of {parent}" if known.parent else own


def attribute_of(text: Pair) -> str:
    """Return the name of the attribute in an AV-pair, such as ``region`` for ``region=gb of lang=en``."""
    return text.partition("=")[0]


def printable(text: str, most: int = 40) -> str:
    """Return a user's text for an error message: cut to ``most`` characters, with "?" for invisible characters."""
    visible = "".join("?" if unicodedata.category(each) in _INVISIBLE else each for each in text[:most])
    return f"{visible}…" if len(text) > most else visible


def refuse_invisible(text: str) -> None:
    """Raise :class:`BadQuery` if the text contains a control character or a forbidden invisible character.

    Joiners and soft hyphens are allowed.
    """
    if not text.isprintable() and any(
        unicodedata.category(each) in _INVISIBLE and ord(each) not in INVISIBLE for each in text
    ):
        raise BadQuery("“{text}” contains an invisible character. Please remove it.", text=printable(text))


def _check_value(attribute: str, value: str) -> str:
    most = MAX_URL_CHARS if attribute == "channel" else MAX_VALUE_CHARS
    if len(value) > most:
        raise BadQuery(
            "The value of “{name}” has {length} characters; the maximum is {most}.",
            name=attribute, length=len(value), most=most,
        )  # fmt: skip
    refuse_invisible(value)
    if not (fold(value) if attribute != "channel" else value.strip()):
        raise BadQuery("“{name}” needs a value: {name}=…", name=attribute)
    return value


def _text(value: str) -> str:
    # NFKC may expand one character to 18.
    return fold(value)[:MAX_VALUE_CHARS]


def _tag(value: str) -> str:
    return _text(value.lstrip("#")) or _text(value)


def _word(value: str) -> str:
    found = words(value, include_common=True)
    if len(found) != 1:
        raise BadQuery("“{text}” is not a single word. Give several words one by one.", text=printable(value))
    if not is_distinctive(found[0]):
        raise BadQuery(
            "“{text}” is in too many titles to search for. Please use a more specific word.", text=printable(value)
        )
    return found[0]


def _pattern_of(form: re.Pattern[str], example: str) -> Callable[[str], str]:
    def normalize(value: str) -> str:
        if not form.fullmatch(fold(value)):
            raise BadQuery(
                "I don't understand “{text}” here; try something like {example}.",
                text=printable(value),
                example=example,
            )
        return fold(value)

    return normalize


def _choice_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def normalize(value: str) -> str:
        if fold(value) not in values:
            raise BadQuery("“{text}” is not one of {known}.", text=printable(value), known=", ".join(values))
        return fold(value)

    return normalize


def _host(value: str) -> str:
    try:
        return host_of(canonical_url(f"https://{fold_case(value).strip('.')}/"))
    except BadUrl as error:
        raise BadQuery("“{text}” is not a host name like example.org.", text=printable(value)) from error


def _top_level(value: str) -> str:
    return _host(f"a.{fold_case(value).strip('.')}").removeprefix("a.")


def _channel(value: str) -> str:
    try:
        return channel_id(canonical_url(value))
    except BadUrl as error:
        raise BadQuery(error.sentence, **error.values) from error


_CHANNELS: Final[frozenset[ContentKind]] = frozenset({"channel"})
_ENTRIES: Final[frozenset[ContentKind]] = frozenset({"entry"})
_BOTH: Final = _CHANNELS | _ENTRIES

ATTRIBUTES: Final[dict[str, Attribute]] = {
    each.name: each
    for each in (
        Attribute("tag", "a category or tag", _tag, _BOTH, single=False),
        Attribute("word", "a word of the title", _word, _BOTH, single=False),
        Attribute("author", "who writes it", _text, _BOTH, single=False),
        Attribute("lang", "the language, as en or pt", _pattern_of(_LANGUAGE, "en, de, pt"), _BOTH),
        Attribute("region", "the language's region, as gb", _pattern_of(_REGION, "gb, ch, br"), _BOTH, parent="lang"),
        Attribute("domain", "the publisher's domain", _host, _BOTH),
        Attribute("host", "the full host name", _host, _BOTH),
        Attribute("tld", "the end of the domain, as org", _top_level, _BOTH),
        Attribute("type", ", ".join(KINDS), _choice_of(KINDS), _CHANNELS),
        Attribute("updates", ", ".join(UPDATE_CLASSES), _choice_of(UPDATE_CLASSES), _CHANNELS),
        Attribute("status", ", ".join(STATUSES), _choice_of(STATUSES), _CHANNELS),
        Attribute("age", "new: known for less than 30 days", _choice_of(AGES), _CHANNELS),
        Attribute("generator", "the software that makes it", _text, _CHANNELS),
        Attribute("version", "the generator's version", _pattern_of(_VERSION, "6.4"), _CHANNELS, parent="generator"),
        Attribute("channel", "the channel's URL", _channel, _ENTRIES),
    )
}
