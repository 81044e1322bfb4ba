"""What people ask for, as sets of AV-pairs: ``tag=python lang=en author="Jane Doe" async limit 5``.

Words that stand alone are words of the title. Every error says what to write instead; nothing is guessed.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import msgspec

from service.discovery.av_pairs import (
    ATTRIBUTES,
    About,
    Pair,
    attribute_of,
    pair,
    refuse_invisible,
    shown,
    unknown_attribute,
    words,
)
from service.discovery.names import language_pairs
from service.discovery.saved_searches import Pattern, Phrase, Standing, Topic, checked
from service.errors import BadQuery
from service.model import Channel, Entry

MOST_QUERY_CHARS: Final = 3000
MOST_PAIRS_ASKED: Final = 16
USUAL_LIMIT: Final = 10
MOST_LIMIT: Final = 50

_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\s="]+)\s?=\s?(?=\S))?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"(?=\s|$)|(?P<bare>[^\s"]+)(?=\s|$))""",
    re.DOTALL,
)
_SYNONYMS: Final = {"language": "lang", "category": "tag", "title": "word", "site": "domain", "kind": "type"}
_LIMIT = "limit"
_WHITE: Final = str.maketrans("\t\r\n", "   ")


class Query(msgspec.Struct, frozen=True):
    """All names of channels, or entries, that have all these pairs; at most ``limit`` of them are wanted."""

    about: About
    pairs: tuple[Pair, ...]
    limit: int = USUAL_LIMIT

    def matches(self, pairs: frozenset[Pair]) -> bool:
        """Say whether a name with these pairs is one of them (subset matching, §II.A)."""
        return pairs.issuperset(self.pairs)


class Finding(msgspec.Struct, frozen=True):
    """What a query is answered with: a channel, or an entry and its channel."""

    channel: Channel
    entry: Entry | None = None
    own: bool = False
    """Nobody's business but of those who follow it, of whom the person is one."""


class _Token(msgspec.Struct, frozen=True):
    name: str
    value: str
    quoted: bool


def parse_query(text: str) -> Query:
    """Return what ``find`` is asked for. Raises :class:`BadQuery`."""
    tokens = _tokens(text)
    tokens, limit = _without_limit(tokens)
    entries = [token for token in tokens if token.name == "type" and token.value.casefold() in ("entry", "entries")]
    about: About = "entry" if entries else "channel"
    pairs = _pairs([token for token in tokens if token not in entries], about)
    return Query(about, pairs, limit)


def parse_watch(text: str) -> Standing:
    """Return what ``watch`` is asked for: AV-pairs, ``"a phrase"``, or ``/a regular expression/``.

    Raises :class:`BadQuery`.
    """
    _check_length(text)
    text = text.strip()
    if len(text) > len("//") and text.startswith("/") and text.endswith("/"):
        return checked(Pattern(text[1:-1]))
    tokens = _tokens(text)
    if len(tokens) == 1 and tokens[0].quoted and not tokens[0].name:
        return checked(Phrase(tuple(words(tokens[0].value, common=True))))
    if len(_without_limit(tokens)[0]) < len(tokens):
        raise BadQuery("“limit” is for `find`: what is watched is told whenever it comes.")
    return Topic(_pairs([token for token in tokens if token.name != "type" or token.value != "entry"], "entry"))


def written(standing: Standing) -> str:
    """Return a standing query as people write it."""
    match standing:
        case Topic(pairs):
            return " ".join(each for one in pairs for each in _written(one))
        case Phrase(found):
            return f'"{" ".join(found)}"'
        case Pattern(expression):
            return f"/{expression}/"


def _written(text: Pair) -> Iterator[str]:
    own, _, parent = text.partition(" of ") if ATTRIBUTES[attribute_of(text)].parent else (text, "", "")
    for each in (own, parent):
        name, _, value = each.partition("=")
        if not value:
            continue
        plain = not re.search(r'[\s"\\]', value)
        yield each if plain else f'{name}="{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'


def _check_length(text: str) -> None:
    if len(text) > MOST_QUERY_CHARS:
        raise BadQuery(
            "That is longer than {most} characters, the most I read. Leave something out.", most=MOST_QUERY_CHARS
        )


def _tokens(text: str) -> list[_Token]:
    _check_length(text)
    text = text.translate(_WHITE).translate(_QUOTES).strip()
    refuse_invisible(text)
    found: list[_Token] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or ("=" in (token["bare"] or "") and not token["name"]):
            raise _odd(text[place:].strip())
        quoted = token["quoted"] is not None
        value = re.sub(r"\\(.)", r"\1", token["quoted"]) if quoted else token["bare"]
        name = (token["name"] or "").casefold()
        found.append(_Token(_SYNONYMS.get(name, name), value, quoted))
        place = token.end()
    return found


def _odd(rest: str) -> BadQuery:
    if rest.count('"') % 2:
        return BadQuery("A quotation mark is not closed: {text}", text=shown(rest))
    if rest.endswith("=") or re.match(r'[^\s="]+=(\s|$)', rest):
        name = shown(rest.split(maxsplit=1)[0])
        return BadQuery("“{name}” needs a value. For example: tag=python lang=en", name=name)
    if rest.startswith("="):
        return BadQuery("An attribute has to stand before “=”. For example: tag=python lang=en")
    return BadQuery("I do not understand this: {text}. For example: tag=python lang=en", text=shown(rest))


def _without_limit(tokens: list[_Token]) -> tuple[list[_Token], int]:
    limits = [token.value for token in tokens if token.name == _LIMIT]
    tokens = [token for token in tokens if token.name != _LIMIT]
    last = tokens[-2:]
    if len(last) > 1 and last[0].value.casefold() == _LIMIT and not any(token.name or token.quoted for token in last):
        limits.append(last[1].value)
        tokens = tokens[:-2]
    if len(limits) > 1:
        raise BadQuery("There is more than one limit.")
    return tokens, _limit(limits[0]) if limits else USUAL_LIMIT


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MOST_LIMIT:
        raise BadQuery("The limit is a number from 1 to {most}, not “{text}”.", most=MOST_LIMIT, text=shown(text))
    return int(text)


def _pairs(tokens: list[_Token], about: About) -> tuple[Pair, ...]:
    named = [token for token in tokens if token.name]
    alone = [word for token in tokens if not token.name for word in words(token.value)]
    found = list(dict.fromkeys([*_named(named, about), *(f"word={word}" for word in alone)]))
    if not found:
        if tokens:
            raise BadQuery("Those words stand everywhere. What else shall I look for? For example: tag=python lang=en")
        raise BadQuery("What shall I look for? For example: tag=python lang=en")
    if len(found) > MOST_PAIRS_ASKED:
        raise _too_many(len(found))
    _refuse_contradictions(found)
    return tuple(sorted(found))


def _named(tokens: list[_Token], about: About) -> list[Pair]:
    if len(tokens) > MOST_PAIRS_ASKED:
        raise _too_many(len(tokens))
    found: list[Pair] = []
    # Parents first: what depends on one is hashed together with it.
    for token in sorted(tokens, key=lambda token: bool(token.name in ATTRIBUTES and ATTRIBUTES[token.name].parent)):
        attribute = ATTRIBUTES.get(token.name)
        if attribute is None:
            raise _unknown(token.name)
        if about not in attribute.of:
            if about == "channel":
                raise BadQuery("“{name}” is known of entries (add type=entry).", name=token.name)
            raise BadQuery("“{name}” is known of channels, not of entries.", name=token.name)
        if token.name == "lang" and (regional := language_pairs(token.value)):
            found += regional
        elif token.name == "word":
            found += [pair("word", word) for word in words(token.value, common=True)] or [pair("word", token.value)]
        else:
            parent = next((each for each in found if attribute_of(each) == attribute.parent), "")
            found.append(pair(token.name, token.value, parent=parent))
    return found


def _too_many(count: int) -> BadQuery:
    return BadQuery(
        "Those are {count} conditions; {most} are the most. Leave some out.", count=count, most=MOST_PAIRS_ASKED
    )


def _unknown(name: str) -> BadQuery:
    near = get_close_matches(name[:20], ATTRIBUTES, n=1, cutoff=0.6)
    return unknown_attribute(name, near[0] if near else "")


def _refuse_contradictions(found: list[Pair]) -> None:
    single = [attribute_of(each) for each in found if ATTRIBUTES[attribute_of(each)].single]
    twice = next((name for name in single if single.count(name) > 1), None)
    if twice is not None:
        raise BadQuery("Nothing has two different values of “{name}”. Ask for one of them.", name=twice)
