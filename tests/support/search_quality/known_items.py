"""Known-item queries made by rule: two rare words of one entry, which is the only right answer.

An entry's two words are the rarest pair, by the number of entries that have them as written, that no other entry has.
Kinds: words of the title as written; one of them inflected (by a rule for each language); accents dropped (one word at
least has an accent); two neighbouring letters within one of them swapped; and two words of the text.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, islice
from typing import Final, NamedTuple

from tests.support.search_quality.corpus import LANGUAGES, Document, seeded
from tests.support.search_quality.judgements import fold

PER_KIND: Final = 30
"""Number of queries of each kind in each language; fewer if too few entries are suited."""
KNOWN_ITEM_KINDS: Final = ("title", "title inflected", "title without accents", "title with swapped letters", "text")
_WORD = re.compile(r"[^\W\d_]+")
_MIN_CHARS: Final = 4
_MIN_CHANGED_CHARS: Final = 5
_FEWER_GENERATED: Final = 0.9
"""Share of the generated entries that are used only if the other entries do not suffice, because they are so many."""
_RAREST: Final = 8
"""Number of an entry's rarest words from which pairs are formed."""


class KnownItem(NamedTuple):
    """A query of two words, the language of its asker, and the id of the only right answer."""

    kind: str
    language: str
    text: str
    answer: str


def known_items(documents: Sequence[Document], per_kind: int = PER_KIND) -> list[KnownItem]:
    """Return the known-item queries of all kinds for some of these documents."""
    having: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        for word in _WORD.findall(f"{document.title} {document.text}"):
            having[word.casefold()].add(document.id)
    found = []
    for language in LANGUAGES:
        own = [document for document in documents if document.channel.language == language]
        for kind in KNOWN_ITEM_KINDS:
            drawn = seeded("known items", language, kind)
            shuffled = drawn.sample(own, len(own))
            shuffled.sort(key=lambda document: document.is_generated and drawn.random() < _FEWER_GENERATED)
            made = (_make_query(kind, document, having, drawn) for document in shuffled)
            suited = ((document, text) for document, text in zip(shuffled, made, strict=True) if text)
            found += [KnownItem(kind, language, text, document.id) for document, text in islice(suited, per_kind)]
    return found


def _make_query(kind: str, document: Document, having: Mapping[str, set[str]], drawn: random.Random) -> str:
    """Return the query of this kind for a document; "" if it has no suited words."""
    words = _WORD.findall(document.text if kind == "text" else document.title)
    usable = list(dict.fromkeys(word for word in words if len(word) >= _MIN_CHARS))
    usable.sort(key=lambda word: len(having[word.casefold()]))
    change = _CHANGES.get(kind)
    first = words[0] if words else ""
    for pair in combinations(usable[:_RAREST], 2):
        if having[pair[0].casefold()] & having[pair[1].casefold()] != {document.id}:
            continue
        if change is None:
            return " ".join(pair)
        changed = [change(word, document.channel.language, drawn) if word != first else word for word in pair]
        if kind == "title without accents":
            if changed != list(pair):
                return " ".join(changed)
        else:
            for place in (0, 1):
                if changed[place] != pair[place]:
                    return " ".join(changed[at] if at == place else pair[at] for at in (0, 1))
    return ""


def _inflect(word: str, language: str, _drawn: random.Random) -> str:
    """Return another form of a word; the word itself if no rule applies.

    Capitalised words are names except in German, where only capitalised words (nouns and names) are inflected.
    """
    if len(word) < _MIN_CHANGED_CHARS or word[0].isupper() is not (language == "de"):
        return word
    if language == "de":
        return f"{word}n" if word.endswith("e") else word if word.endswith(("n", "s", "z", "x", "ß")) else f"{word}s"
    if language == "en" and word.endswith(("ed", "ing", "ss", "y", "ly")):
        return word
    if language == "fr" and word.endswith(("x", "z", "ent", "er")):
        return word
    if word.endswith("s"):
        return word[:-1]
    return f"{word}es" if language == "es" and fold(word)[-1] not in "aeiou" else f"{word}s"


def _drop_accents(word: str, _language: str, _drawn: random.Random) -> str:
    return word if fold(word) == word.casefold() else fold(word)


def _swap_letters(word: str, _language: str, drawn: random.Random) -> str:
    places = [at for at in range(1, len(word) - 2) if word[at] != word[at + 1]]
    if len(word) < _MIN_CHANGED_CHARS or not places:
        return word
    at = drawn.choice(places)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


_CHANGES: Final[Mapping[str, Callable[[str, str, random.Random], str]]] = {
    "title inflected": _inflect,
    "title without accents": _drop_accents,
    "title with swapped letters": _swap_letters,
}
