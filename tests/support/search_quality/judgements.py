"""Queries with the grades of relevance, 0 to 3, that a person would give to each entry of the corpus.

``queries.txt`` has one query a line: ``kind|language|query|words|stories``. It was written with the stories, before the
product's search was evaluated. *stories* lists the stories that answer the query, with a grade (``volcano/*=3``);
*words* lists what an entry must mention, as beginnings of words: alternatives are separated by ``/``, ``=`` demands a
whole word, ``_`` stands for a space, and ``!`` excludes entries.

The grade of an entry follows from both, by what a person sees in a list of results:

- An entry of a listed story with grade *g*: *g* if it mentions all words, and one of them in the title; one less if it
  mentions them only in its text; two less if it does not mention them all.
- Any other entry that mentions all words: 3 (a generated entry) or 2 if its title mentions them all, else 1.
  A round-up: 1.
- Entries in another language than the asker's: 1 if their title mentions all words, else 0. If the query has no
  language (a name), all languages count alike.
- Entries that a field, a phrase or an exclusion of the query rules out: 0.
"""

import datetime as dt
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from typing import Final, NamedTuple

from tests.support.search_quality.corpus import Document, read_lines

KINDS: Final = (
    "word", "two", "inflected", "accents", "typo", "phrase", "field", "exclude", "or", "names", "tokens", "prefix",
)  # fmt: skip
ANY_LANGUAGE: Final = "*"
_FIELD = re.compile(r'\b(lang|site|author|after):(?:"([^"]+)"|(\S+))')


class Word(NamedTuple):
    """The folded beginning of a word, or a whole word."""

    text: str
    is_whole: bool


class JudgedQuery(NamedTuple):
    """A query with the conditions by which entries are graded.

    ``language`` is the asker's language, or ``ANY_LANGUAGE``. ``required`` has the alternatives of each word that an
    entry must mention, and ``excluded`` those of each word that it must not mention. ``stories`` are patterns of
    names with grades; the last that matches counts.
    """

    kind: str
    language: str
    text: str
    required: tuple[tuple[Word, ...], ...]
    excluded: tuple[tuple[Word, ...], ...]
    stories: tuple[tuple[str, int], ...]
    fields: Mapping[str, str]
    is_phrase: bool

    def is_foreign(self, document: Document) -> bool:
        """Return whether an entry is in another language than the asker's, or than that of a field ``lang:``."""
        asked = self.fields.get("lang", self.language)
        return asked not in (ANY_LANGUAGE, document.channel.language)

    def allows(self, document: Document) -> bool:
        """Return whether an entry has the values of the query's fields."""
        values = {"lang": document.channel.language, "site": document.channel.site, "author": document.author}
        after = self.fields.get("after")
        return all(self.fields.get(name, value) == value for name, value in values.items()) and (
            after is None or document.date >= dt.date.fromisoformat(after)
        )


@cache
def judged_queries() -> tuple[JudgedQuery, ...]:
    """Return all judged queries."""
    found = []
    for line in read_lines("queries.txt"):
        kind, language, text, needs, stories = line.split("|")
        fields = {match[1]: match[2] or match[3] for match in _FIELD.finditer(text)}
        tokens = needs.split()
        found.append(
            JudgedQuery(
                kind,
                language,
                text,
                tuple(_words(token) for token in tokens if not token.startswith("!")),
                tuple(_words(token[1:]) for token in tokens if token.startswith("!")),
                tuple((name, int(grade)) for name, _, grade in (each.partition("=") for each in stories.split())),
                fields,
                is_phrase='"' in _FIELD.sub("", text),
            )
        )
    return tuple(found)


class Grader:
    """Grades entries for judged queries."""

    def __init__(self, documents: Sequence[Document]) -> None:
        """Create a grader of these entries."""
        self._documents = documents
        self._stories: dict[str, set[int]] = {}
        for place, each in enumerate(documents):
            if each.story:
                self._stories.setdefault(each.story, set()).add(place)
        self._titles = _Texts([fold(each.title) for each in documents])
        self._bodies = _Texts([fold(f"{each.text}\n{' '.join(each.tags)}") for each in documents])

    def grades(self, query: JudgedQuery) -> dict[str, int]:
        """Return the grades, 1 to 3, of the entries that are relevant, by id."""
        everything = frozenset(range(len(self._documents)))
        titles = [self._titles.mentioning(each) for each in query.required]
        wholes = [title | self._bodies.mentioning(each) for title, each in zip(titles, query.required, strict=True)]
        excluded = [self._titles.mentioning(each) | self._bodies.mentioning(each) for each in query.excluded]
        in_title, mentioning = everything.intersection(*titles), everything.intersection(*wholes)
        hinted, ruled_out = frozenset[int]().union(*titles), frozenset[int]().union(*excluded)
        found = {}
        for place in sorted(mentioning | self._listed(query)):
            document = self._documents[place]
            if place in ruled_out or not query.allows(document) or (query.is_phrase and place not in mentioning):
                continue
            grade = _grade(
                query, document, mentions=place in mentioning, hints=place in hinted, in_title=place in in_title
            )
            if grade > 0:
                found[document.id] = grade
        return found

    def _listed(self, query: JudgedQuery) -> frozenset[int]:
        """Return the places of the entries of the stories that the query lists."""
        listed = (
            places
            for name, places in self._stories.items()
            if any(fnmatchcase(name, pattern) for pattern, _ in query.stories)
        )
        return frozenset[int]().union(*listed)


class _Texts:
    """Folded texts, in which the beginnings of words are looked up."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._all = "\n\n".join(texts)
        self._starts = list(accumulate((len(text) + 2 for text in texts[:-1]), initial=0))

    def mentioning(self, alternatives: Sequence[Word]) -> frozenset[int]:
        """Return the places of the texts that have one of these words."""
        found: set[int] = set()
        for word in alternatives:
            at = self._all.find(word.text)
            while at >= 0:
                end = at + len(word.text)
                if not self._is_letter(at - 1) and not (
                    word.is_whole and (self._is_letter(end) or self._all[end : end + 1] in ("+", "#"))
                ):
                    found.add(bisect_right(self._starts, at) - 1)
                at = self._all.find(word.text, end)
        return frozenset(found)

    def _is_letter(self, at: int) -> bool:
        return 0 <= at < len(self._all) and (self._all[at].isalnum() or self._all[at] == "_")


def fold(text: str) -> str:
    """Return a text in lower case without accents."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in decomposed if not unicodedata.combining(each))


def _grade(query: JudgedQuery, document: Document, *, mentions: bool, hints: bool, in_title: bool) -> int:
    """Return the grade of an entry that no field, phrase or exclusion of the query rules out.

    ``mentions`` and ``in_title`` are true if the entry, or its title, has all words; ``hints`` if its title has one.
    """
    if query.is_foreign(document):
        return int(in_title)
    listed = [grade for pattern, grade in query.stories if fnmatchcase(document.story, pattern)]
    if listed:
        return listed[-1] - (0 if mentions and hints else 1 if mentions else 2)
    if not document.story and not document.is_generated:
        return int(mentions)
    return (3 if document.is_generated else 2) if in_title else int(mentions)


def _words(token: str) -> tuple[Word, ...]:
    return tuple(
        Word(fold(each.removeprefix("=").replace("_", " ")), each.startswith("=")) for each in token.split("/")
    )
