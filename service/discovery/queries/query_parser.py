"""The parser for the queries that people write with the commands ``find``, ``watch`` and ``filter``.

========================================  =============================================================================
``rust async``                            both words, in any form (stem), in the title or the text
``"memory safety"``                       these words in this form, one directly after the other
``pyth*``                                 a word that begins with ``pyth``
``rust OR go async``, ``rust | go``       (rust or go) and async: ``OR`` binds more strongly than spaces
``-ads``, ``-"press release"``            without this word, phrase or field (``-tag:sport``)
``#rust``                                 the tag or the word
``example.org``                           the words, or anything from this site
``title:rust``, ``title:"in rust"``       a word, the beginning of a word, or a phrase in the title
``lang:en``, ``lang:german``              the language; ``lang:en-GB`` with a region
``site:example.org``, ``site:.org``       the publisher's domain or host name, or a top-level domain
``author:jane``, ``tag:"machine learning"``  and the other attributes (``service.discovery.av_pairs.ATTRIBUTES``)
``link:example.org/ads``, ``text:"a word"``  a part of the link, words of the text; only with ``filter``
``after:2026-11-01``, ``after:3d``        entries published on that day or later; days (d), weeks (w), months (m),
                                          years (y) ago; ``today``, ``yesterday``
``type:entry``, ``type:feed``             entries instead of channels; feeds only, or pages only (``type:page``)
``limit 5``                               at most 5 results at once, at the end of the query
``/expression/``                          a regular expression (RE2), only with ``watch`` and ``filter``, on its own
========================================  =============================================================================

- An equals sign may be used instead of the colon.
- The names of fields, ``OR`` and the names of days may also be written in the other languages of the bot.
- Common words ("the") are left out unless they are part of a phrase.
- A word that contains punctuation (``e-mail``, ``10:30``, ``std::vector``) is a phrase, except for words such as
  ``C++``, ``C#``, ``.net`` and ``node.js``.
- For an unsupported operator, the error message names the operator (:mod:`service.discovery.queries.query_tokens`).
  Only punctuation is ignored silently.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

from service.discovery.av_pairs import (
    ATTRIBUTES,
    KINDS,
    ContentKind,
    Pair,
    make_pair,
    printable,
)
from service.discovery.content_names import language_pairs
from service.discovery.queries.query import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Condition,
    PairCondition,
    PhraseCondition,
    Query,
    WordCondition,
)
from service.discovery.queries.query_tokens import FILTER_FIELDS, Token, pattern_error, tokenize
from service.discovery.queries.saved_searches import (
    MAX_PHRASE_WORDS,
    PatternCondition,
    QueryCondition,
    SearchCondition,
    validate_pattern,
)
from service.discovery.word_analysis import fold, is_distinctive, words
from service.errors import BadQuery

MAX_CONDITIONS: Final = 16
MIN_PREFIX_CHARS: Final = 3

_ENTRY_KINDS: Final = frozenset(
    (
        *("entry", "entries", "article", "articles", "post", "posts", "eintrag", "artikel", "entree", "entrada"),
        *("articulo", "articolo", "artigo", "bericht", "wpis"),
    )
)
_CHANNEL_KINDS: Final = frozenset(("channel", "channels", "kanal", "chaine", "canal", "canale", "kanaal"))
_LANGUAGE_CODES: Final = {
    name: code
    for code, names in {
        "en": "english englisch anglais ingles inglese engels angielski",
        "de": "german deutsch allemand aleman tedesco alemao duits niemiecki",
        "fr": "french franzosisch francais frances francese frans francuski",
        "es": "spanish spanisch espagnol espanol spagnolo espanhol spaans hiszpanski",
        "it": "italian italienisch italien italiano italiaans wloski",
        "pt": "portuguese portugiesisch portugais portugues portoghese portugees portugalski",
        "nl": "dutch niederlandisch neerlandais neerlandes olandese holandes nederlands niderlandzki",
        "pl": "polish polnisch polonais polaco polacco polones pools polski",
    }.items()
    for name in names.split()
}
_DAYS_AGO: Final = {
    name: days
    for days, names in {
        0: "today heute hoy aujourd'hui oggi hoje vandaag dzis dzisiaj",
        1: "yesterday gestern hier ayer ieri ontem gisteren wczoraj",
    }.items()
    for name in names.split()
}
_SPAN = re.compile(r"(\d{1,4})([dwmy])")
_DAYS_PER_UNIT: Final = {"d": 1, "w": 7, "m": 30, "y": 365}
_ISO_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_DOTTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_FIRST_DAY: Final = date(1970, 1, 1)

_CACHED_TEXTS: Final = 500
_APOSTROPHES = re.compile("['\u2018\u2019`\u00b4]")
_HASHTAG = re.compile(r"#([^\W\d_][\w-]*)[.,;:!?]*")
_HOST_LIKE = re.compile(r"(?:[^\W_][\w-]*\.)+[^\W\d_]{2,}")


def parse_query(text: str, today: date, limit: int = DEFAULT_LIMIT) -> Query:
    """Parse ``text``, the argument of a ``find`` command, into a query.

    Days such as ``after:yesterday`` are relative to ``today``. ``limit`` is used if ``text`` does not contain a limit.

    Raises :class:`BadQuery` for invalid syntax.
    """
    if _expression(text):
        raise pattern_error()
    tokens, own_limit = _take_limit(_tokenize_search(text))
    tokens, kind = _take_kind(tokens)
    tokens, after = _take_after(tokens, today)
    if after is not None and kind == "channel":
        raise BadQuery("“{name}” only works for entries (add type:entry).", name="after")
    about: ContentKind = "entry" if after is not None else kind or "channel"
    all_of, none_of = _conditions(tokens, about)
    return Query(about, all_of, none_of, after, own_limit or limit)


def parse_watch(text: str) -> SearchCondition:
    """Parse the argument of a ``watch`` command into a condition: a query for entries, or a regular expression.

    A regular expression is written between slashes. Queries that differ only in the order of their conditions give
    equal results. Raises :class:`BadQuery` for invalid syntax.
    """
    expression = _expression(text)
    if expression:
        return validate_pattern(PatternCondition(expression))
    tokens = _tokenize_search(text)
    if len(_take_limit(tokens)[0]) < len(tokens):
        raise BadQuery("“limit” only works with `find`: a saved search sends every match.")
    if any(token.name == "after" for token in tokens):
        raise BadQuery("“after” only works with `find`: a saved search only sends new entries anyway.")
    tokens, kind = _take_kind(tokens)
    if kind == "channel":
        raise BadQuery("A saved search finds entries, not channels.")
    return _query_condition(*_conditions(tokens, "entry"))


def parse_filter(text: str) -> SearchCondition:
    """Parse the condition of a filter: a query with ``FILTER_FIELDS``, or a regular expression between slashes.

    The query may consist of excluded conditions only. Raises :class:`BadQuery` for invalid syntax.
    """
    if expression := _expression(text):
        return validate_pattern(PatternCondition(expression))
    if not _words(text):
        raise BadQuery('I can\'t find any words in that. Use words, "a phrase" or /a regular expression/.')
    tokens, known = tokenize(text), ", ".join(FILTER_FIELDS)
    for token in tokens:
        if token.kind == "field" and token.name not in FILTER_FIELDS:
            raise BadQuery("“{name}:” doesn't work with `filter`. You can use {known}.", name=token.name, known=known)
    return _query_condition(*_conditions(tokens, "entry", can_be_excluding=True))


def _query_condition(all_of: Iterable[tuple[Condition, ...]], none_of: Iterable[Condition]) -> QueryCondition:
    """Return the condition in a form that does not depend on the order in which its parts were written."""
    groups = sorted((tuple(sorted(each, key=repr)) for each in all_of), key=repr)
    return QueryCondition(tuple(groups), tuple(sorted(none_of, key=repr)))


def _tokenize_search(text: str) -> list[Token]:
    """Split a search into tokens; raise :class:`BadQuery` for a field that only filters have."""
    tokens = tokenize(text)
    for token in tokens:
        if token.name in ("link", "text"):
            raise BadQuery("“{name}:” only works with `filter`.", name=token.name)
    return tokens


def saved_search_text(text: str) -> str:
    """Return the text of a query in the form in which it is saved: without ``limit``, ``after`` and ``type:entry``.

    ``text`` must be valid for :func:`parse_query` or :func:`parse_watch`. The result is a single line.
    """
    if _expression(text):
        return text.strip()
    tokens = _take_kind(_take_limit(tokenize(text))[0])[0]
    return " ".join(token.source for token in tokens if token.name != "after")


def _expression(text: str) -> str:
    """Return the regular expression in ``text`` if ``text`` is enclosed in slashes; otherwise ""."""
    text = text.strip()
    return text[1:-1] if len(text) > len("//") and text.startswith("/") and text.endswith("/") else ""


def _take_limit(tokens: list[Token]) -> tuple[list[Token], int]:
    """Return (the tokens without the limit, the limit); the limit is 0 if the query does not state one."""
    limits = [token for token in tokens if token.name == "limit"]
    others = [token for token in tokens if token.name != "limit"]
    last = others[-2:]
    if len(last) > 1 and last[0].source.casefold() == "limit" and re.fullmatch(r"-?\d+", last[1].source):
        limits, others = [*limits, last[1]], others[:-2]
    if len(limits) > 1:
        raise BadQuery("There is more than one limit. Please give only one.")
    return others, _limit(limits[0].value) if limits else 0


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MAX_LIMIT:
        raise BadQuery(
            "The limit has to be a number from 1 to {most}, not “{text}”.", most=MAX_LIMIT, text=printable(text)
        )
    return int(text)


def _take_kind(tokens: list[Token]) -> tuple[list[Token], ContentKind | None]:
    """Return (the other tokens, the kind of content that ``type:entry`` or ``type:channel`` requests).

    The kind is None if the query contains neither of these tokens.
    """
    kinds: list[ContentKind] = []
    others = []
    for token in tokens:
        value = fold(token.value) if token.name == "type" else ""
        if value in _ENTRY_KINDS or value in _CHANNEL_KINDS:
            _refuse_as_part(token, tokens)
            kinds.append("entry" if value in _ENTRY_KINDS else "channel")
        else:
            others.append(token)
    if len(set(kinds)) > 1:
        raise _several_values_error("type")
    return others, kinds[0] if kinds else None


def _take_after(tokens: list[Token], today: date) -> tuple[list[Token], date | None]:
    """Return (the other tokens, the day that ``after:`` states); the day is None if there is no ``after:``.

    Days such as ``3d`` and ``yesterday`` are relative to ``today``.
    """
    days = [token for token in tokens if token.name == "after"]
    for token in days:
        _refuse_as_part(token, tokens)
    if len(days) > 1:
        raise _several_values_error("after")
    others = [token for token in tokens if token.name != "after"]
    return others, _day(days[0].value, today) if days else None


def _refuse_as_part(token: Token, tokens: list[Token]) -> None:
    """Raise :class:`BadQuery` if ``token`` is excluded with a minus or joined to another token with ``OR``.

    ``token`` is a field that applies to the whole query, such as ``after:``. ``tokens`` are all tokens of the query.
    """
    at = tokens.index(token)
    if token.is_excluded or any(each.kind == "or" for each in [*tokens[max(at - 1, 0) : at], *tokens[at + 1 : at + 2]]):
        raise BadQuery("“{name}:” doesn't work with a minus or with OR.", name=token.name)


def _day(text: str, today: date) -> date:
    value = fold(text)
    try:
        if value in _DAYS_AGO:
            return today - timedelta(days=_DAYS_AGO[value])
        if span := _SPAN.fullmatch(value):
            return today - timedelta(days=int(span[1]) * _DAYS_PER_UNIT[span[2]])
        day = _date(value)
    except OverflowError:
        return _FIRST_DAY
    except ValueError:
        day = None
    if day is None:
        raise BadQuery(
            "“{text}” isn't a day I understand. Use a date like 2026-11-01, or 3d, 2w, yesterday.",
            text=printable(text),
        )
    if day > today:
        raise BadQuery(
            "{text} is in the future, so there's nothing to find yet. Please use an earlier date.", text=printable(text)
        )
    return max(day, _FIRST_DAY)


def _date(value: str) -> date | None:
    """Parse a date such as 2026-11-01 or 1.11.2026; return None for other texts.

    The day, or both month and day, may be missing in the first form (2026-11). Raises :class:`ValueError` if the date
    does not exist.
    """
    if iso := _ISO_DATE.fullmatch(value):
        return date(int(iso[1]), int(iso[2] or 1), int(iso[3] or 1))
    dotted = _DOTTED_DATE.fullmatch(value)
    return date(int(dotted[3]), int(dotted[2]), int(dotted[1])) if dotted else None


def _conditions(
    tokens: list[Token], about: ContentKind, *, can_be_excluding: bool = False
) -> tuple[tuple[tuple[Condition, ...], ...], tuple[Condition, ...]]:
    """Convert tokens to conditions: return (groups of alternative conditions, excluded conditions).

    A result must satisfy at least one condition in each group, and must not satisfy any excluded condition. ``about``
    is the kind of content to search. ``can_be_excluding`` allows tokens that only exclude something.
    """
    meant = [token for token in tokens if token.kind != "word" or _words(token.value)]
    count = sum(
        token.kind != "or" and (token.kind != "word" or any(map(is_distinctive, _words(token.value))))
        for token in meant
    )
    if count > MAX_CONDITIONS:
        raise BadQuery(
            "That's {count} conditions; the maximum is {most}. Please leave some out.", count=count, most=MAX_CONDITIONS
        )
    parents = _parents(meant)
    all_of: list[tuple[Condition, ...]] = []
    none_of: list[Condition] = []
    values: dict[str, tuple[Condition, ...]] = {}
    for group in _split_at_or(meant):
        found = [_alternatives(token, about, parents) for token in group]
        if not all(found) and (len(group) > 1 or group[0].is_excluded):
            common = group[found.index(())]
            raise BadQuery(
                "“{text}” is in too many texts to search for. Please use a more specific word.",
                text=printable(common.value),
            )
        distinct = tuple(dict.fromkeys(condition for alternatives in found for condition in alternatives))
        if group[0].is_excluded:
            none_of += distinct
        elif distinct:
            all_of.append(distinct)
            name = group[0].name
            if len(group) == 1 and _is_single(name) and values.setdefault(name, distinct) != distinct:
                raise _several_values_error(name)
    if not all_of and not (can_be_excluding and none_of):
        raise _empty_error(meant, none_of)
    for alternatives in all_of:
        if set(alternatives) <= set(none_of):
            raise BadQuery(
                "You're asking for “{text}” and excluding it at the same time. Please leave one of the two out.",
                text=_label(alternatives[0]),
            )
    return tuple(dict.fromkeys(all_of)), tuple(dict.fromkeys(none_of))


def _split_at_or(tokens: list[Token]) -> list[list[Token]]:
    """Split the tokens into groups of alternatives.

    ``OR`` puts the tokens before and after it into the same group. Any other token forms a group of its own.
    """
    groups: list[list[Token]] = []
    joins = False
    for at, token in enumerate(tokens):
        if token.kind == "or":
            if joins or at in (0, len(tokens) - 1):
                raise BadQuery(
                    "“{word}” needs a word on both sides: `rust OR go`. To search for it as a word, put it in "
                    "quotation marks.",
                    word=token.value,
                )  # fmt: skip
            joins = True
            continue
        if joins:
            groups[-1].append(token)
        else:
            groups.append([token])
        excluded = [each for each in groups[-1] if each.is_excluded]
        if excluded and len(groups[-1]) > 1:
            raise BadQuery(
                "OR doesn't work with words you exclude. Please leave out the OR next to “{text}”.",
                text=printable(excluded[0].source),
            )
        joins = False
    return groups


def _empty_error(meant: list[Token], none_of: list[Condition]) -> BadQuery:
    if none_of:
        return BadQuery("That only says what to leave out. What should I search for? For example: news -sport")
    if meant:
        return BadQuery("Those words are too common. What else should I search for? For example: python lang:en")
    return BadQuery("What should I search for? For example: python lang:en")


def _several_values_error(name: str) -> BadQuery:
    return BadQuery(
        "You gave “{name}” several values, but each result has only one. Pick one, or write OR between them.", name=name
    )


def _is_single(name: str) -> bool:
    return name == "site" or (name in ATTRIBUTES and name != "word" and ATTRIBUTES[name].single)


def _parents(tokens: Iterable[Token]) -> dict[str, Pair]:
    """Return the attribute-value pairs for ``lang`` and ``generator`` in a query, keyed by these two names.

    Other pairs depend on them. A region depends on the language (``region=gb of lang=en``), and a version depends on
    the generator, the software that made a feed. Excluded tokens are ignored.
    """
    found = {}
    for token in tokens:
        if token.is_excluded:
            continue
        if token.name == "lang":
            found["lang"] = make_pair("lang", _language(token.value).replace("_", "-").partition("-")[0])
        elif token.name == "generator":
            found["generator"] = make_pair("generator", token.value)
    return found


def _language(value: str) -> str:
    """Return the language code for a language name such as "german"; other values are returned unchanged."""
    return _LANGUAGE_CODES.get(fold(value), value)


def _alternatives(token: Token, about: ContentKind, parents: dict[str, Pair]) -> tuple[Condition, ...]:
    """Return the alternative conditions that a token stands for.

    The result is empty if the token consists of common words such as "the". ``about`` is the kind of content to search.
    ``parents`` is the result of :func:`_parents`.
    """
    match token.kind, token.name:
        case "field", "title" | "word":
            return _title_word(token)
        case "field", name:
            return tuple(PairCondition(pair) for pair in _field_pairs(name, token.value, about, parents))
        case "phrase", _:
            return (_phrase(token.value),)
        case "prefix", _:
            return (_prefix(token.value),)
        case _:
            return _word(token.value)


def _title_word(token: Token) -> tuple[Condition, ...]:
    in_title = token.name == "title"
    if not _words(token.value):
        raise BadQuery("“{name}” needs a value: {name}:…", name=token.name)
    if token.is_quoted:
        return (_phrase(token.value, in_title=in_title),)
    if "*" in token.value:
        if not re.fullmatch(r"[^*?]+\*", token.value):
            raise BadQuery(
                "“{sign}” can't be used inside a word. But you can search for the beginning of a word: `pyth*`.",
                sign="*",
            )
        return (_prefix(token.value[:-1], in_title=in_title),)
    found = _plain(token.value, in_title=in_title)
    if not found:
        raise BadQuery(
            "“{text}” is in too many texts to search for. Please use a more specific word.", text=printable(token.value)
        )
    return found


@lru_cache(_CACHED_TEXTS)
def _words(text: str) -> tuple[str, ...]:
    """Return the folded words of a text, including common ones; the parts of a query are examined several times."""
    return tuple(words(text, include_common=True))


def _phrase(text: str, *, in_title: bool = False) -> PhraseCondition:
    found = _words(text)
    if not found:
        raise BadQuery("There are no words between the quotation marks.")
    if not any(map(is_distinctive, found)):
        raise BadQuery("These words are too common. Please use more specific ones.")
    if len(found) > MAX_PHRASE_WORDS:
        raise BadQuery(
            "That's {count} words; a phrase can have at most {most}.", count=len(found), most=MAX_PHRASE_WORDS
        )
    return PhraseCondition(found, in_title)


def _prefix(text: str, *, in_title: bool = False) -> WordCondition:
    found = _words(text)
    if len(found) != 1:
        raise BadQuery("“*” only works at the end of a single word: `pyth*`.")
    if len(found[0]) < MIN_PREFIX_CHARS and found[0].isascii():
        raise BadQuery("Please give at least {least} letters before “*”.", least=MIN_PREFIX_CHARS)
    return WordCondition(found[0], is_prefix=True, in_title=in_title)


def _word(text: str) -> tuple[Condition, ...]:
    hashtag = _HASHTAG.fullmatch(text)
    if hashtag:
        return (PairCondition(make_pair("tag", hashtag[1])), *_plain(hashtag[1]))
    host = text.rstrip(".,;:!?")
    if _HOST_LIKE.fullmatch(host):
        with suppress(BadQuery):  # two words with a dot between them, but no host name
            return (*_plain(host), *map(PairCondition, _site_pairs(host)))
    return _plain(text)


def _plain(text: str, *, in_title: bool = False) -> tuple[Condition, ...]:
    """Return the condition for a text without operators: a word, or a phrase of several words.

    The result is empty if all words are common, such as "the".
    """
    parts = _APOSTROPHES.split(text)
    # The ends of "l'été" and "Rust's" are no words.
    while parts and len(own := _words(parts[0])) <= 1 and not any(map(is_distinctive, own)):
        parts = parts[1:]
    while parts and len(own := _words(parts[-1])) <= 1 and not any(map(is_distinctive, own)):
        parts = parts[:-1]
    found = _words("'".join(parts))
    if not any(map(is_distinctive, found)):
        return ()
    return (WordCondition(found[0], in_title=in_title),) if len(found) == 1 else (PhraseCondition(found, in_title),)


def _field_pairs(name: str, value: str, about: ContentKind, parents: dict[str, Pair]) -> list[Pair]:
    """Return the alternative attribute-value pairs that the field ``name:value`` stands for.

    ``about`` is the kind of content to search. ``parents`` is the result of :func:`_parents`.
    """
    if name == "site":
        return _site_pairs(value)
    if name in ("link", "text"):
        found = f" {' '.join(_words(value))} " if name == "text" else fold(value)
        if not found.strip():
            raise BadQuery("“{name}” needs a value: {name}:…", name=name)
        return [f"{name}={found}"]
    attribute = ATTRIBUTES[name]
    if about not in attribute.kinds:
        if about == "channel":
            raise BadQuery("“{name}” only works for entries (add type:entry).", name=name)
        raise BadQuery("“{name}” only works for channels, not for entries.", name=name)
    if name == "type" and fold(value) not in KINDS:
        raise BadQuery("“{text}” is not one of {known}.", text=printable(value), known=", ".join((*KINDS, "entry")))
    if name == "lang":
        value = _language(value)
        if regional := language_pairs(value):
            return regional[-1:]
    return [make_pair(name, value, parent=parents.get(attribute.parent, ""))]


def _site_pairs(value: str) -> list[Pair]:
    if value.startswith(".") and "." not in value[1:]:
        return [make_pair("tld", value)]
    host = value.partition("://")[2] or value
    name, _, path = host.partition("/")
    if path:
        raise BadQuery("“site:” takes a whole site, without a path: site:{host}", host=printable(name))
    if "." not in name.strip("."):
        raise BadQuery("“{text}” is not a host name like example.org.", text=printable(value))
    return [make_pair("domain", name), make_pair("host", name)]


def _label(condition: Condition) -> str:
    match condition:
        case WordCondition(word, is_prefix):
            return printable(f"{word}*" if is_prefix else word)
        case PhraseCondition(found):
            return printable(" ".join(found))
        case PairCondition(pair):
            return printable(pair)
