"""Parser of search queries, which are sets of AV-pairs: ``tag=python lang=en author="Jane Doe" async limit 5``.

A word without an attribute is a word of the title. The text of every error states what to write instead; the parser
never guesses.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import msgspec

from service.discovery.av_pairs import (
    ATTRIBUTES,
    ContentKind,
    Pair,
    attribute_of,
    make_pair,
    printable,
    refuse_invisible,
    unknown_attribute_error,
)
from service.discovery.names import language_pairs
from service.discovery.query import DEFAULT_LIMIT, MAX_LIMIT, Condition, PairCondition, Query, WordCondition
from service.discovery.saved_searches import (
    PairsCondition,
    PatternCondition,
    PhraseCondition,
    SearchCondition,
    validate_condition,
)
from service.discovery.word_analysis import words
from service.errors import BadQuery

MAX_QUERY_CHARS: Final = 3000
MAX_QUERY_PAIRS: Final = 16

_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\s="]+)\s?=\s?(?=\S))?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"(?=\s|$)|(?P<bare>[^\s"]+)(?=\s|$))""",
    re.DOTALL,
)
_SYNONYMS: Final = {"language": "lang", "category": "tag", "title": "word", "site": "domain", "kind": "type"}
_LIMIT = "limit"
_WHITE: Final = str.maketrans("\t\r\n", "   ")


class _Token(msgspec.Struct, frozen=True):
    name: str
    value: str
    quoted: bool


def parse_query(text: str) -> Query:
    """Return the query of a ``find`` command; ``text`` is the command's argument.

    Raises :class:`BadQuery` for invalid syntax.
    """
    tokens = _tokens(text)
    tokens, limit = _without_limit(tokens)
    entries = [token for token in tokens if token.name == "type" and token.value.casefold() in ("entry", "entries")]
    about: ContentKind = "entry" if entries else "channel"
    pairs = _pairs([token for token in tokens if token not in entries], about)
    return Query(about, tuple((_condition(pair),) for pair in pairs), limit=limit)


def parse_watch(text: str) -> SearchCondition:
    """Return the condition of a ``watch`` command: AV-pairs, ``"a phrase"``, or ``/a regular expression/``.

    ``text`` is the command's argument. Raises :class:`BadQuery` for invalid syntax.
    """
    _check_length(text)
    text = text.strip()
    if len(text) > len("//") and text.startswith("/") and text.endswith("/"):
        return validate_condition(PatternCondition(text[1:-1]))
    tokens = _tokens(text)
    if len(tokens) == 1 and tokens[0].quoted and not tokens[0].name:
        return validate_condition(PhraseCondition(tuple(words(tokens[0].value, include_common=True))))
    if len(_without_limit(tokens)[0]) < len(tokens):
        raise BadQuery("“limit” only works with `find`: a saved search sends every match.")
    return PairsCondition(
        _pairs([token for token in tokens if token.name != "type" or token.value != "entry"], "entry")
    )


def format_condition(condition: SearchCondition) -> str:
    """Return a saved search's condition in the syntax that :func:`parse_watch` reads."""
    match condition:
        case PairsCondition(pairs):
            return " ".join(each for one in pairs for each in _format_pair(one))
        case PhraseCondition(found):
            return f'"{" ".join(found)}"'
        case PatternCondition(expression):
            return f"/{expression}/"


def _format_pair(text: Pair) -> Iterator[str]:
    own, _, parent = text.partition(" of ") if ATTRIBUTES[attribute_of(text)].parent else (text, "", "")
    for each in (own, parent):
        name, _, value = each.partition("=")
        if not value:
            continue
        plain = not re.search(r'[\s"\\]', value)
        yield each if plain else f'{name}="{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'


def _check_length(text: str) -> None:
    if len(text) > MAX_QUERY_CHARS:
        raise BadQuery(
            "That's longer than {most} characters, the maximum. Please leave something out.", most=MAX_QUERY_CHARS
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
            raise _syntax_error(text[place:].strip())
        quoted = token["quoted"] is not None
        value = re.sub(r"\\(.)", r"\1", token["quoted"]) if quoted else token["bare"]
        name = (token["name"] or "").casefold()
        found.append(_Token(_SYNONYMS.get(name, name), value, quoted))
        place = token.end()
    return found


def _syntax_error(rest: str) -> BadQuery:
    if rest.count('"') % 2:
        return BadQuery("A closing quotation mark is missing: {text}", text=printable(rest))
    if rest.endswith("=") or re.match(r'[^\s="]+=(\s|$)', rest):
        name = printable(rest.split(maxsplit=1)[0])
        return BadQuery("“{name}” needs a value. For example: tag=python lang=en", name=name)
    if rest.startswith("="):
        return BadQuery("There has to be an attribute before “=”. For example: tag=python lang=en")
    return BadQuery("I don't understand this: {text}. For example: tag=python lang=en", text=printable(rest))


def _without_limit(tokens: list[_Token]) -> tuple[list[_Token], int]:
    limits = [token.value for token in tokens if token.name == _LIMIT]
    tokens = [token for token in tokens if token.name != _LIMIT]
    last = tokens[-2:]
    if len(last) > 1 and last[0].value.casefold() == _LIMIT and not any(token.name or token.quoted for token in last):
        limits.append(last[1].value)
        tokens = tokens[:-2]
    if len(limits) > 1:
        raise BadQuery("There is more than one limit. Please give only one.")
    return tokens, _limit(limits[0]) if limits else DEFAULT_LIMIT


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MAX_LIMIT:
        raise BadQuery(
            "The limit has to be a number from 1 to {most}, not “{text}”.", most=MAX_LIMIT, text=printable(text)
        )
    return int(text)


def _pairs(tokens: list[_Token], about: ContentKind) -> tuple[Pair, ...]:
    named = [token for token in tokens if token.name]
    alone = [word for token in tokens if not token.name for word in words(token.value)]
    found = list(dict.fromkeys([*_named_pairs(named, about), *(f"word={word}" for word in alone)]))
    if not found:
        if tokens:
            raise BadQuery("Those words are too common. What else should I search for? For example: tag=python lang=en")
        raise BadQuery("What should I search for? For example: tag=python lang=en")
    if len(found) > MAX_QUERY_PAIRS:
        raise _too_many_pairs(len(found))
    _refuse_contradictions(found)
    return tuple(sorted(found))


def _named_pairs(tokens: list[_Token], about: ContentKind) -> list[Pair]:
    if len(tokens) > MAX_QUERY_PAIRS:
        raise _too_many_pairs(len(tokens))
    found: list[Pair] = []
    # Parents first: a dependent pair is hashed together with its parent.
    for token in sorted(tokens, key=lambda token: bool(token.name in ATTRIBUTES and ATTRIBUTES[token.name].parent)):
        attribute = ATTRIBUTES.get(token.name)
        if attribute is None:
            raise _unknown_attribute(token.name)
        if about not in attribute.kinds:
            if about == "channel":
                raise BadQuery("“{name}” only works for entries (add type=entry).", name=token.name)
            raise BadQuery("“{name}” only works for channels, not for entries.", name=token.name)
        if token.name == "lang" and (regional := language_pairs(token.value)):
            found += regional
        elif token.name == "word":
            found += [make_pair("word", word) for word in words(token.value, include_common=True)] or [
                make_pair("word", token.value)
            ]
        else:
            parent = next((each for each in found if attribute_of(each) == attribute.parent), "")
            found.append(make_pair(token.name, token.value, parent=parent))
    return found


def _condition(pair: Pair) -> Condition:
    word = pair.removeprefix("word=")
    return PairCondition(pair) if word == pair else WordCondition(word)


def _too_many_pairs(count: int) -> BadQuery:
    return BadQuery(
        "That's {count} conditions; the maximum is {most}. Please leave some out.", count=count, most=MAX_QUERY_PAIRS
    )


def _unknown_attribute(name: str) -> BadQuery:
    near = get_close_matches(name[:20], ATTRIBUTES, n=1, cutoff=0.6)
    return unknown_attribute_error(name, near[0] if near else "")


def _refuse_contradictions(found: list[Pair]) -> None:
    single = [attribute_of(each) for each in found if ATTRIBUTES[attribute_of(each)].single]
    twice = next((name for name in single if single.count(name) > 1), None)
    if twice is not None:
        raise BadQuery("You gave several values of “{name}”, but a result has only one. Please pick one.", name=twice)
