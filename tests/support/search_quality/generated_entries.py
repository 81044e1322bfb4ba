"""The generated entries of the corpus: patterns with gaps, filled by a seeded generator.

``patterns/*.txt`` has for each language lists of words (``city: London|Leeds|…``), of which the first are chosen most
often, as in Zipf's law, and patterns (``= section tags``) with titles (``T``) and sentences (``S``). ``{…}`` is a gap,
which has the same value in all sentences of an entry; ``[a|b]`` is a choice. Surnames and villages are composed of a
beginning, perhaps a middle, and an ending, so that most of them are rare, as names are in real feeds.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tests.support.search_quality.corpus import Document, channels, make_document, read_lines, seeded

GENERATED: Final = 1060
"""Number of generated entries in each language."""
_GAP = re.compile(r"\{(\w+)\}")
_MIDDLES: Final = ("", "", "", "el", "in", "er", "ol", "am", "ess")
_NUMBERS: Final = {"num": range(150, 6_000, 10), "small": range(2, 30), "old": range(31, 98)}
_CHOICE = re.compile(r"\[([^\]]+)\]")


class _Pattern(NamedTuple):
    section: str
    tags: tuple[str, ...]
    titles: list[str]
    sentences: list[str]
    lists: dict[str, list[str]]


def generated_documents(language: str, count: int) -> Iterator[Document]:
    """Yield ``count`` generated entries of a language."""
    lists, patterns = _read_patterns(language)
    for number in range(count):
        drawn = seeded("generated", language, number)
        pattern = patterns[number % len(patterns)]
        values = _Values({**lists, **pattern.lists}, drawn)
        title = values.fill(drawn.choice(pattern.titles))
        chosen = sorted(drawn.sample(range(len(pattern.sentences)), min(len(pattern.sentences), drawn.choice([3, 4]))))
        text = " ".join(values.fill(pattern.sentences[each]) for each in chosen)
        channel = drawn.choice(channels()[language, pattern.section])
        document = make_document(f"{language}/generated/{number}", channel, _capital(title), text, pattern.tags)
        yield document._replace(is_generated=True)


class _Values:
    """The values of the gaps of one entry."""

    def __init__(self, lists: Mapping[str, Sequence[str]], drawn: random.Random) -> None:
        self._lists, self._drawn = lists, drawn
        self._values: dict[str, str] = {}

    def fill(self, text: str) -> str:
        """Return a text with values in place of its gaps and choices."""
        chosen = _CHOICE.sub(lambda choice: self._pick(choice[1].split("|")), text)
        return _GAP.sub(lambda gap: self._value(gap[1]), chosen)

    def _value(self, name: str) -> str:
        if name not in self._values:
            made = self._make(name)
            while name[-1].isdigit() and made == self._values.get(name[:-1]):
                made = self._make(name)
            self._values[name] = made
        return self._values[name]

    def _make(self, name: str) -> str:
        drawn, kind = self._drawn, name.rstrip("2")
        match kind:
            case "village" | "surname":
                beginning, ending = drawn.choice(self._lists["beginning"]), drawn.choice(self._lists["ending"])
                return beginning + drawn.choice(_MIDDLES) + ending
            case "person":
                suffix = name.removeprefix(kind)
                return f"{self._value(f'first{suffix}')} {self._value(f'surname{suffix}')}"
            case "version":
                return f"{drawn.randint(1, 12)}.{drawn.randint(0, 9)}"
        if kind in _NUMBERS:
            return str(drawn.choice(_NUMBERS[kind]))
        return self.fill(self._pick(self._lists[kind]))

    def _pick(self, values: Sequence[str]) -> str:
        weights = list(accumulate(1 / rank for rank in range(1, len(values) + 1)))
        return self._drawn.choices(values, cum_weights=weights)[0]


def _read_patterns(language: str) -> tuple[dict[str, list[str]], list[_Pattern]]:
    common: dict[str, list[str]] = {}
    patterns: list[_Pattern] = []
    for line in read_lines(f"patterns/{language}.txt"):
        if line.startswith("= "):
            section, _, tags = line.removeprefix("= ").partition(" ")
            patterns.append(_Pattern(section, tuple(filter(None, tags.split(","))), [], [], {}))
        elif line.startswith(("T ", "S ")):
            (patterns[-1].titles if line.startswith("T") else patterns[-1].sentences).append(line[2:])
        else:
            name, _, values = line.partition(": ")
            (patterns[-1].lists if patterns else common)[name] = values.split("|")
    return common, patterns


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
