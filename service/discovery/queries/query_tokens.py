"""Splits a search query into tokens, and rejects operators that the query language does not have.

Text is split at white space, quotation marks and ``|``. Operators of other search engines are never silently ignored:
they raise :class:`BadQuery` with a message that names the operator and suggests what to write instead. Punctuation that
people paste with titles does not count as an operator. Examples are a single ``-``, a colon before a space, and
parentheses around words.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, Literal

import msgspec

from service.discovery.av_pairs import ATTRIBUTES, printable, refuse_invisible
from service.discovery.word_analysis import fold
from service.errors import BadQuery

MAX_QUERY_CHARS: Final = 3000

FIELD_SYNONYMS: Final = {
    synonym: name
    for name, synonyms in {
        "title": "titel titre titulo titolo tytul",
        "tag": "category schlagwort etiquette etiqueta etichetta trefwoord etykieta",
        "lang": "language sprache langue idioma lingua taal jezyk",
        "author": "autor autorin auteur autora autore autrice autorka",
        "link": "lien enlace collegamento odnosnik",
        "text": "texte texto testo tekst",
        "site": "sitio sito witryna",
        "type": "kind typ tipo soort",
        "after": "since seit nach depuis apres desde despues dopo depois sinds",
    }.items()
    for synonym in synonyms.split()
}
"""Names of fields by their synonyms in all languages of the bot, folded: ``schlagwort`` stands for ``tag``."""
FILTER_FIELDS: Final = ("title", "author", "link", "tag", "text")
"""The fields of filters. Searches have no `link` and `text`, because there is no index for them."""
_FIELDS: Final = frozenset(("site", "after", "limit", *FILTER_FIELDS, *ATTRIBUTES))
_SUGGESTED_FIELDS: Final = "title, tag, author, lang, site, after"
# Fields of other search engines, with the field that comes nearest; "" if there is none.
_FOREIGN_FIELDS: Final = {
    "intitle": "title", "allintitle": "title", "subject": "title", "headline": "title",
    "inurl": "site", "url": "site", "from": "author", "by": "author", "creator": "author",
    "newer": "after", "date": "after", "keyword": "tag", "hashtag": "tag", "topic": "tag", "label": "tag",
    "filetype": "", "ext": "",
}  # fmt: skip
_BEFORE: Final = ("before", "until", "older", "vor", "bis", "avant", "antes", "hasta", "prima", "voor", "przed")

_OR: Final = ("OR", "ODER", "OU", "OPPURE", "LUB")
_AND: Final = ("AND", "UND", "ET", "&&")
_LOWERCASE_OR: Final = ("or", "oder", "ou", "oppure", "lub")

_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_WHITE: Final = str.maketrans("\t\r\n", "   ")
_QUOTE: Final = re.compile(r'(?<!\\)(?:\\\\)*"')
"""A quotation mark that is not escaped."""
_INCHES = re.compile(r'(?<=\d)"(?=[\s,;.]|$)')

_TOKEN = re.compile(
    rf"""
    (?P<minus>[-\u2010-\u2013\u2212](?=[^\s\-\u2010-\u2014\u2212|]))?
    (?:
        (?P<bar>\|+)
      | (?:(?P<spaced>(?i:{"|".join(sorted(_FIELDS | FIELD_SYNONYMS.keys()))}))\s?=\s?(?=[^\s=])
          |(?P<attached>[^\W\d_]\w*)(?:=(?=[^\s=])|:(?=[^\s:/|])))
        (?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]+))
      | (?P<before>[+~!^])?"(?P<phrase>(?:[^"\\]|\\.)*)"(?P<behind>[~^*][^\s"|]*)?
      | (?P<word>[^\s"|]+)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_PREFIX = re.compile(r"(\w[^*?]*)\*+[.,;:!?)]*")

TokenKind = Literal["or", "field", "phrase", "prefix", "word"]


class Token(msgspec.Struct, frozen=True):
    """A part of a query's text.

    - ``kind``: "field" for ``name:value``, "phrase" for a text in quotation marks, "prefix" for ``pyth*``, "or" for
      ``OR`` and ``|``, "word" for everything else, including punctuation.
    - ``value``: as the user wrote it: the field's value, the text without quotation marks, the prefix without ``*``, or
      the word.
    - ``source``: the text of the whole token.
    - ``name``: the English name of the field in lower case; "" for other tokens.
    - ``is_excluded``: whether a minus precedes the token.
    - ``is_quoted``: whether the value is in quotation marks.
    """

    kind: TokenKind
    value: str
    source: str
    name: str = ""
    is_excluded: bool = False
    is_quoted: bool = False


def tokenize(text: str) -> list[Token]:
    """Split a query's text into tokens. Raises :class:`BadQuery` for an operator that is not supported."""
    if len(text) > MAX_QUERY_CHARS:
        raise BadQuery(
            "That's longer than {most} characters, the maximum. Please leave something out.", most=MAX_QUERY_CHARS
        )
    text = text.translate(_WHITE).translate(_QUOTES).strip()
    refuse_invisible(text)
    if len(_QUOTE.findall(text)) % 2:
        text = _INCHES.sub("″", text)
    found: list[Token] = []
    place = 0
    while place < len(text):
        if text[place] == " ":
            place += 1
            continue
        match = _TOKEN.match(text, place)
        if match is None or (match["word"] and match["word"][-1] in ":=" and text[match.end() :].startswith('"')):
            raise BadQuery("A closing quotation mark is missing: {text}", text=printable(text[place:]))
        found.append(_token(match))
        place = match.end()
    _refuse_grouping(found)
    # In "tea or coffee", the small "or" is no operator, and no word to search for either.
    inner = range(1, len(found) - 1)
    return [each for at, each in enumerate(found) if not (at in inner and _is_lowercase_or(each))]


def is_field(name: str) -> bool:
    """Return whether ``name`` is the name of a field or a synonym of it, such as ``tag`` or ``Sprache``."""
    folded = fold(name)
    return folded in _FIELDS or folded in FIELD_SYNONYMS


def _is_lowercase_or(token: Token) -> bool:
    return token.kind == "word" and not token.is_excluded and token.value.lower() in _LOWERCASE_OR


def _is_main_field(name: str) -> bool:
    """Return whether ``name:``, followed by a space, is probably a field without its value.

    This is assumed only for common fields. Other words before a colon and a space are probably part of a pasted
    title.
    """
    folded = fold(name)
    return FIELD_SYNONYMS.get(folded, folded) in ("title", "tag", "author", "lang", "site", "type", "after", "limit")


def _token(match: re.Match[str]) -> Token:
    source, is_excluded = match[0].strip(), match["minus"] is not None
    if match["bar"]:
        return Token("or", match["bar"], source)
    if match["spaced"] or match["attached"]:
        return _field_token(match, source, is_excluded=is_excluded)
    if match["phrase"] is not None:
        _refuse_around_phrase(match["before"] or "", match["behind"] or "")
        if re.search(r"\w{2}\*(?:\s|$)", match["phrase"]):
            raise _phrase_prefix_error()
        return Token("phrase", _unescape(match["phrase"]), source, "", is_excluded, is_quoted=True)
    word = match["word"]
    if word in _OR and not is_excluded:
        return Token("or", word, source)
    _refuse_operator(word)
    prefix = _PREFIX.fullmatch(word)
    if prefix:
        return Token("prefix", prefix[1], source, "", is_excluded)
    _refuse_wildcards(word)
    return Token("word", word, source, "", is_excluded)


def _field_token(match: re.Match[str], source: str, *, is_excluded: bool) -> Token:
    written = match["spaced"] or match["attached"]
    name = FIELD_SYNONYMS.get(fold(written), fold(written))
    if name in _BEFORE:
        raise BadQuery(
            "“{name}:” isn't supported, but you can search from a certain day on: `after:2026-11-01` or `after:3d`.",
            name=written,
        )
    if name not in _FIELDS:
        _refuse_unknown_field(written, source[source.index(written) :])
        return Token("word", source, source, "", is_excluded)  # a word with a colon, such as C:\temp
    if match["quoted"] is not None:
        return Token("field", _unescape(match["quoted"]), source, name, is_excluded, is_quoted=True)
    value = match["plain"].rstrip(",;")
    if name != "channel":
        if "|" in value:
            first, second = (printable(each) for each in value.split("|", 1))
            raise BadQuery(
                "Please write OR instead of “|”, and repeat the field: {name}:{first} OR {name}:{second}",
                name=written, first=first, second=second,
            )  # fmt: skip
        if value.endswith(")") and "(" not in value:
            raise _grouping_error()
        if "*" in value and name not in ("title", "word"):
            raise BadQuery("“*” only works with words, not with “{name}:”. Please write the whole value.", name=written)
    return Token("field", value, source, name, is_excluded)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _refuse_unknown_field(name: str, source: str) -> None:
    """Raise :class:`BadQuery` if ``name`` looks like the name of a field but is unknown.

    ``source`` is the token that begins with ``name``.
    """
    if not source.startswith(f"{name}=") and re.match(r'[^\W\d_]{3,}:["\w]', source) is None:
        return
    folded = fold(name)
    near = get_close_matches(folded[:20], _FIELDS, n=1, cutoff=0.6)
    near = near or get_close_matches(folded[:20], FIELD_SYNONYMS, n=1, cutoff=0.75)
    if suggested := _FOREIGN_FIELDS.get(folded, near[0] if near else ""):
        raise BadQuery(
            "I don't know “{name}”. Did you mean “{near}:”? To search for it as text, put it in quotation marks.",
            name=printable(source[: len(name) + 1]), near=suggested,
        )  # fmt: skip
    raise BadQuery(
        "I don't know “{name}”. You can use {known} and more. To search for it as text, put it in quotation marks.",
        name=printable(source[: len(name) + 1]), known=_SUGGESTED_FIELDS,
    )  # fmt: skip


def _refuse_operator(word: str) -> None:
    """Raise :class:`BadQuery` if ``word``, which is not in quotation marks, is an unsupported operator."""
    for pattern, error in _UNSUPPORTED:
        if pattern.search(word):
            raise error(word)
    if word[-1] in ":=" and _is_main_field(word[:-1]):
        raise BadQuery("“{name}” needs a value right after it, without a space: {name}…", name=printable(word))


def _refuse_wildcards(word: str) -> None:
    if word == "*":
        raise BadQuery("“*” on its own finds nothing. `discover` shows what there is.")
    if "*" in word or re.search(r"\w\?+\w", word):
        raise BadQuery(
            "“{sign}” can't be used inside a word. But you can search for the beginning of a word: `pyth*`.",
            sign="*" if "*" in word else "?",
        )


def _refuse_around_phrase(before: str, behind: str) -> None:
    """Raise :class:`BadQuery` if there is an operator directly before or after a phrase in quotation marks.

    ``before`` and ``behind`` are the texts directly before and after the quotation marks.
    """
    if behind[:1] == "*":
        raise _phrase_prefix_error()
    if behind[:1] == "~":
        raise _proximity_error(behind)
    if before or behind:
        raise {"+": _plus_error, "!": _not_error, "~": _fuzzy_error, "^": _boost_error}[before or behind[0]](before)


def _refuse_grouping(tokens: list[Token]) -> None:
    """Raise :class:`BadQuery` for a range such as ``[1 TO 5]``, and for grouping that cannot be ignored.

    Grouping means parentheses and ``AND``. In a query without ``OR``, ``AND`` is redundant, and parentheses are usually
    just punctuation.
    """
    words = [token for token in tokens if token.kind in ("word", "prefix")]
    has_or = any(token.kind == "or" for token in tokens)
    for token in words:
        if token.value.startswith("(") and (has_or or token.is_excluded or _is_parenthesized_field(token.value)):
            raise _grouping_error()
        if has_or and token.value in _AND:
            raise BadQuery(
                "Please leave out “{word}”; it isn't needed next to OR. `rust OR go async` finds async together "
                "with rust or go.",
                word=token.value,
            )
        if token.value == "TO" and any(other.value[:1] in ("[", "{") for other in words):
            raise BadQuery(
                "“{word}” isn't supported: I can't compare values. For dates, use `after:`.", word="[… TO …]"
            )
    if has_or and any(token.value.endswith(")") and "(" not in token.value for token in words):
        raise _grouping_error()


def _is_parenthesized_field(word: str) -> bool:
    name, colon, _ = word.lstrip("(").replace("=", ":").partition(":")
    return bool(colon) and is_field(name)


def _grouping_error() -> BadQuery:
    return BadQuery(
        "Parentheses aren't supported, and you don't need them: `rust OR go async` finds async together with rust or "
        "go. To leave out several words, put a minus before each."
    )


def _phrase_prefix_error() -> BadQuery:
    return BadQuery("“*” doesn't work within quotation marks. Write a whole phrase, or a single word: `pyth*`.")


def _range_error(word: str) -> BadQuery:
    return BadQuery("“{word}” isn't supported: I can't compare values. For dates, use `after:`.", word=printable(word))


def _not_error(word: str) -> BadQuery:
    return BadQuery(
        "“{word}” isn't supported. To leave something out, put a minus before it: `-word`.",
        word="!" if word[0] == "!" else word,
    )


def _proximity_error(word: str) -> BadQuery:
    name = re.match(r"[A-Za-z]*", word)
    return BadQuery(
        "“{word}” isn't supported. Put words that belong together in quotation marks.",
        word=printable((name and name[0]) or word),
    )


def _plus_error(_word: str) -> BadQuery:
    return BadQuery("Please leave out “+”; it isn't needed. Results with every word come first anyway.")


def _fuzzy_error(_word: str) -> BadQuery:
    return BadQuery("Please leave out “~”; it isn't supported. I find other forms of a word anyway.")


def _boost_error(_word: str) -> BadQuery:
    return BadQuery("Please leave out “^”; it isn't supported. To search titles only, write title: before the word.")


def _pattern_error(_word: str) -> BadQuery:
    return pattern_error()


def pattern_error() -> BadQuery:
    """Return the error for a regular expression in a search that does not accept one."""
    return BadQuery(
        "Regular expressions only work with `filter` and, on their own, with `watch /…/`. Here you can search for "
        "the beginning of a word: `pyth*`."
    )


def _url_error(word: str) -> BadQuery:
    host = word.partition("://")[2].partition("/")[0]
    return BadQuery(
        "To subscribe to an address, send it on its own. To search within a site, write site:{host}.",
        host=printable(host or "example.org"),
    )


def _no_field_error(_word: str) -> BadQuery:
    return BadQuery("There has to be a field before “=”. For example: tag=python lang=en")


_UNSUPPORTED: Final[tuple[tuple[re.Pattern[str], Callable[[str], BadQuery]], ...]] = (
    (re.compile(r"^(?:NOT|ANDNOT|NICHT|NON|SAUF|NÃO|NIET|NIE)$|^![^\W\d]"), _not_error),
    (re.compile(r"^NEAR(?:[/(]|$)|^(?i:near/\d|near\(|around\()"), _proximity_error),
    (re.compile(r"^\+[^\W\d]"), _plus_error),
    (re.compile(r"^~[^\W\d]|\w~[\d.]*$"), _fuzzy_error),
    (re.compile(r"^\^[^\W\d]|\w\^"), _boost_error),
    (re.compile(r"^/.+/[a-z]?$"), _pattern_error),
    (re.compile(r"^[^\W\d_]{3,}[<>]=?\d"), _range_error),
    (re.compile(r"^[(<\[]?\w[\w+.-]*://"), _url_error),
    (re.compile(r"^=+\w"), _no_field_error),
)
"""Operators that are not supported, with their errors."""
