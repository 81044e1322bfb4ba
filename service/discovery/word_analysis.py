"""Text analysis for search: the words of a text, their stems, and the language of the text.

Documents and queries are analysed in the same steps:

1. A text is *folded*: differences in case, width, Unicode composition and accents are removed.
2. It is split into *words*: runs of letters and digits. ``C++``, ``C#``, ``.net`` and ``node.js`` are words, too. In
   scripts without spaces between words, each pair of neighbouring characters counts as a word.
3. *Common words* (function words such as "the") are left out.
4. Each word is reduced to its *stem* by the Snowball stemmer for the document's language. The language of a query is
   unknown, so its words get the stems of all stemmed languages (``LANGUAGES``).

Folding comes before stemming, so that a query without accents has the same stems as a document with them. At most
``MAX_TEXT_CHARS`` characters of a text are examined, and words are cut to ``MAX_WORD_CHARS`` characters.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import Stemmer

LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt")
"""The stemmed languages (ISO 639-1). Words in other languages, also in some of the bot's, are indexed as they are."""

MAX_TEXT_CHARS: Final = 10_000
MAX_WORD_CHARS: Final = 40

_MIN_WORD_CHARS = 2
_BEGINNING_CHARS = 4
_REPLACED_CHARS = 2
"""Maximum number of characters that a stemmer replaces at the end of a word: one in "cri", the stem of "cry"."""
_CACHED_WORDS = 50_000

INVISIBLE: Final = frozenset({0x200C, 0x200D, 0xAD})
"""Invisible characters that are allowed in texts: joiners and soft hyphens."""
# Characters that are left out, and typographic quotation marks.
_EQUIVALENTS: Final = dict.fromkeys(INVISIBLE) | dict.fromkeys(map(ord, "“”„‟«»"), '"')
# Letters with strokes, and ligatures, which Unicode does not decompose.
_UNDECOMPOSED: Final = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "\u0131": "i", "ħ": "h"}
)
_UMLAUT_E = re.compile("(?<=[aou])e+")
_ACCENT = re.compile("[\u0300-\u036f]+")
_PUNCTUATION = re.compile(r"[^a-z0-9_\n]+")

_WORD = re.compile(
    r"""
    (?<![\w.])\.(?=[a-z]+\b)[a-z]{3,10}(?!\.?\w)    # .net
    | [a-z](?:\+\+|\#)(?!\w)                        # c++ c#
    | \w+(?:\.\w+)*                                 # node.js 3.12 example.org
    """,
    re.VERBOSE,
)
# Scripts without spaces between words: each two neighbouring characters count as a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

_FUNCTION_WORDS: Final = {
    "en": "a an the of and to in is for on with at by it its as from that this these those are was were be been or how "
    "what why who when where which your you we our us they their he she his her i my not but if can will has have "
    "had do does did so than then there about into out up more most all some any no just also",
    "de": "der die das und ist im in den von zu mit fur auf des ein eine einen einem einer eines dem nicht wie was "
    "sich es am aus bei nach auch an als er sie ich wir ihr man hat haben wird werden sind war oder aber wenn dass "
    "so noch nur uber vor zum zur durch bis um kein keine mehr dieser diese dieses kann",
    "fr": "le la les de des et un une du en est pour dans au aux sur par que qui ce cette ces pas se ne sa son ses il "
    "elle ils nous vous je on plus avec sont a ont ou mais comme tout leur leurs etre fait sans d l s c n qu",
    "es": "el los las la y una un uno por con del al para se lo su sus no es mas como de que en a ha han son pero ya "
    "o este esta estos estas fue ser sobre entre cuando muy sin desde hasta nos le les si tambien",
    "it": "il lo la i gli le un uno una di del dello della dei degli delle a al alla ai alle da dal dalla in nel nella "
    "con su sul sulla per tra fra e che non si come piu ma anche sono ha ho questo questa questi essere chi cosa "
    "quando perche ci",
    "pt": "o a os as um uma de do da dos das em no na nos nas por para com que nao se como mais mas e ou ao aos sao "
    "foi ser seu sua este esta isso quando muito ja tem",
}
_FUNCTION_WORD_SETS: Final = {language: frozenset(listed.split()) for language, listed in _FUNCTION_WORDS.items()}
# Words in so many texts that a search for them would be meaningless. Words that carry meaning in another of these
# languages ("war", "man", "fait") are not among them.
_COMMON_WORDS_LIST: Final = (
    "the of and to in is for on with at by an it as from that this are be or how what why your you we our us "
    "these those was were been who when where which they their he she his her not but if can will has have had its "
    "der die das und ist im in den von zu mit fur auf des ein eine einen einem einer eines dem nicht wie was sich es "
    "am aus bei nach auch als er sie ich wir ihr hat haben wird werden sind oder aber wenn dass "
    "le la les de des et un une du en est pour dans au aux sur par que qui ce cette ces pas se ne sa son ses il elle "
    "nous vous je avec sont mais "
    "el los las y una por con del al para se lo su sus no es mas como pero ha"
)
_COMMON_WORDS: Final = frozenset(_COMMON_WORDS_LIST.split())
_MIN_EVIDENCE = 2
"""Minimum number of function words that a text must contain for its language to be recognised by them."""
_DECISIVE_INTERVAL = 4
"""At least one word in this many must be a function word. Otherwise the language tag decides.

This applies only to tags of languages that are not stemmed.
"""


def fold(text: str) -> str:
    """Return a text in a form for comparisons that ignore case and accents.

    The comparisons also ignore differences in quotation marks, white space, Unicode composition and the width of
    characters.
    """
    folded = fold_case(text)
    if folded.isascii():
        return folded
    decomposed = unicodedata.normalize("NFKD", folded.translate(_UNDECOMPOSED))
    return fold_case(_ACCENT.sub("", decomposed))


def fold_case(text: str) -> str:
    """Return a text in a form for comparisons that ignore case, but not accents.

    The comparisons also ignore differences in quotation marks, white space, Unicode composition and the width of
    characters.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    once = unicodedata.normalize("NFKC", text).translate(_EQUIVALENTS).casefold()
    return " ".join(unicodedata.normalize("NFKC", once).split())


def separate_words(folded: str) -> str:
    """Return a folded ASCII text with one space before each word, and without punctuation; line breaks are kept."""
    return _PUNCTUATION.sub(" ", f" {folded}".replace("\n", "\n "))


def words(text: str, *, include_common: bool = False) -> list[str]:
    """Return the words of a text in their original order, folded (without case and accents) but not stemmed.

    Common words and single ASCII characters are left out unless ``include_common`` is true. Only the first
    ``MAX_TEXT_CHARS`` characters of ``text`` are examined.
    """
    return folded_words(fold(text[:MAX_TEXT_CHARS])[:MAX_TEXT_CHARS], include_common=include_common)


def folded_words(folded: str, *, include_common: bool = False) -> list[str]:
    """Return the words of a folded text (without case and accents), as :func:`words` does."""
    found: list[str] = _WORD.findall(folded)
    if not folded.isascii():
        found = [part for run in found for part in _split_unspaced(run)]
    return [word[:MAX_WORD_CHARS] for word in found if word and (include_common or is_distinctive(word))]


def word_parts(word: str) -> list[str]:
    """Return the parts of a word that contains dots. For example, the parts of "node.js" are "node" and "js".

    Parts that are common words or single ASCII characters are left out. The result is empty for words without dots.
    """
    return [part for part in word.split(".") if part and is_distinctive(part)] if "." in word.strip(".") else []


def is_distinctive(word: str) -> bool:
    """Return whether a folded word can be searched for: it is neither a common word nor a single ASCII character."""
    return (len(word) >= _MIN_WORD_CHARS or not word.isascii()) and word not in _COMMON_WORDS


def is_function_word(word: str, language: str) -> bool:
    """Return whether a folded word is a function word (article, preposition, …) of ``language`` (ISO 639-1)."""
    return word in _FUNCTION_WORD_SETS.get(language, ())


def stem(word: str, language: str) -> str:
    """Return the stem of a folded word in ``language`` (ISO 639-1).

    The word itself is returned if it contains anything but letters, or if ``language`` is not one of ``LANGUAGES``.
    """
    return _stem(word, language) if language in LANGUAGES else word


@lru_cache(_CACHED_WORDS)
def stem_beginning(stem: str) -> str:
    """Return a prefix that all words with the stem ``stem`` have in common.

    The prefix has no umlauts. Umlauts must also be removed from the words with which it is compared
    (:func:`without_umlauts`).
    """
    # Stemmers replace only the end of a word, except that the German stemmer treats "ue" as an umlaut.
    plain = without_umlauts(stem)
    return plain[: max(1, min(_BEGINNING_CHARS, len(plain) - _REPLACED_CHARS))]


def without_umlauts(folded: str) -> str:
    """Return a folded text without any ``e`` that follows ``a``, ``o`` or ``u``.

    Both spellings of an umlaut then become equal: "für" (folded to "fur") and "fuer".
    """
    plain = folded.replace("ae", "a").replace("oe", "o").replace("ue", "u")
    has_more = len(plain) < len(folded) and ("ae" in plain or "oe" in plain or "ue" in plain)
    return _UMLAUT_E.sub("", plain) if has_more else plain


@lru_cache(_CACHED_WORDS)
def query_stems(word: str) -> tuple[str, ...]:
    """Return the stems under which a folded word of a query is looked up, without duplicates.

    These are the word itself and its stems in all stemmed languages.
    """
    # The word itself finds documents in other languages, whose words are not stemmed.
    return tuple(dict.fromkeys([word, *(_stem(word, language) for language in LANGUAGES)]))


@lru_cache(_CACHED_WORDS)
def word_beginnings(word: str) -> tuple[str, ...]:
    """Return the beginnings (:func:`stem_beginning`) of all stems of a folded word of a query, without duplicates.

    A text that contains none of them, after its umlauts were removed, contains no inflected form of the word.
    """
    return tuple(dict.fromkeys(map(stem_beginning, query_stems(word))))


def text_language(text_words: Sequence[str], declared: str) -> str:
    """Return the language (ISO 639-1) of a text, recognised by its function words; "" if it is unknown.

    - ``text_words``: all words of the text, including function words such as "the".
    - ``declared``: the language tag that the publisher declares; "" if there is none. It is used if the function words
      are not conclusive.
    """
    primary = re.split("[-_]", declared.strip().lower())[0]
    counts = {language: sum(map(known.__contains__, text_words)) for language, known in _FUNCTION_WORD_SETS.items()}
    most = max(counts.values())
    best = [language for language, count in counts.items() if count == most]
    if most < _MIN_EVIDENCE or primary in best:
        return primary
    # A text in a language that is not stemmed (such as Dutch) also contains some of these words.
    return best[0] if not primary or primary in LANGUAGES or most * _DECISIVE_INTERVAL >= len(text_words) else primary


def _stem(word: str, language: str) -> str:
    if not word.isalpha():
        return word
    stem_word = _STEMMERS[language].stemWord
    while (stemmed := stem_word(word)) not in ("", word):
        word = stemmed
    return word


def _stemmer(language: str) -> Stemmer.Stemmer:
    stemmer = Stemmer.Stemmer(language)
    stemmer.maxCacheSize = 0  # its own cache takes five times as long as stemming a word
    return stemmer


_STEMMERS: Final = {language: _stemmer(language) for language in LANGUAGES}


def _split_unspaced(run: str) -> Iterable[str]:
    """Split a run of letters and digits into words.

    In scripts without spaces, each pair of neighbouring characters counts as a word.
    """
    end = 0
    for unspaced in _UNSPACED.finditer(run):
        yield run[end : unspaced.start()].strip(".")
        yield from _bigrams(unspaced[0])
        end = unspaced.end()
    yield run[end:].strip(".") if end else run


def _bigrams(run: str) -> Iterable[str]:
    return map("".join, pairwise(run)) if len(run) > 1 else (run,)
