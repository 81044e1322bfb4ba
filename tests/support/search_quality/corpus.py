"""A corpus of feed entries in English, German, French and Spanish, on which the quality of search is measured.

The texts were made for this test; none is copied. The corpus has three parts:

- *Stories* (``stories/*.txt``): 450 short invented reports on some 170 topics; every title and sentence is written by
  hand. A story has two or three titles and three to six sentences. Each title becomes one entry with a selection of
  these sentences, as channels that report on the same event write different titles and share sentences. Many stories
  exist in several languages with the same names of people and places. Some words have several meanings (*python*,
  *rust*, *mercury*, *jaguar*).
- *Round-ups*: entries that list three stories of one section. They mention a subject without being about it.
- *Generated entries* (:mod:`tests.support.search_quality.generated_entries`): patterns with gaps, which are filled with
  words and with rare names of people and villages. They make up most of the corpus, so that document frequencies
  resemble those of real feeds.

Dates, authors and channels are chosen by a seeded generator: the corpus is always the same.
"""

import datetime as dt
import random
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

LANGUAGES: Final = ("en", "de", "fr", "es")
FOLDER: Final = Path(__file__).parent
FIRST_DAY: Final = dt.date(2026, 1, 1)
DAYS: Final = 300
MIN_WORDS: Final = 20

_SECTIONS: Final = {
    topic: section
    for section, topics in {
        "world": "volcano quake flood storm drought wildfire election strike migration treaty fire",
        "science": "wolves bees whales fossil archaeology mars telescope mercury fusion vaccine battery quantum "
        "climate jaguar amazon igel lynx turtles hielo wind solar nuclear garden pilze",
        "tech": "python rust kernel database browser security cpp csharp dotnet nodejs golang java ai chips xmpp "
        "feeds editor selfhost",
        "money": "inflation bank startup airline post agave fashion",
        "sport": "football cycling marathon tennis chess swimming handball rugby petanque boxing pelota",
        "food": "bread soup cheese coffee chocolate curry turkey potato wine paella",
        "culture": "opera film museum novel jazz theatre comics music dictionary uhr hiking wandern",
    }.items()
    for topic in topics.split()
}
"""The section of each topic; topics that are missing are of the section ``local``."""
_ROUND_UPS: Final = {
    "en": ("Round-up", {"world": "world", "science": "science", "tech": "technology", "money": "money"}),
    "de": ("Überblick", {"world": "Welt", "science": "Wissen", "tech": "Technik", "money": "Geld"}),
    "fr": ("En bref", {"world": "monde", "science": "sciences", "tech": "technique", "money": "argent"}),
    "es": ("Resumen", {"world": "mundo", "science": "ciencia", "tech": "técnica", "money": "dinero"}),
}


class FeedChannel(NamedTuple):
    """A channel of the corpus; ``site`` is its domain."""

    language: str
    section: str
    site: str
    title: str
    authors: tuple[str, ...]

    @property
    def url(self) -> str:
        """The URL of its feed."""
        return f"https://{self.site}/feed.xml"


class Document(NamedTuple):
    """An entry of the corpus.

    ``story`` is ``topic/name`` of the story that it reports; "" for a round-up, and for a generated entry, for which
    ``is_generated`` is true.
    """

    id: str
    channel: FeedChannel
    title: str
    text: str
    tags: tuple[str, ...]
    author: str
    date: dt.date
    story: str = ""
    is_generated: bool = False


class Story(NamedTuple):
    """A story: several titles and sentences, of which entries are composed."""

    name: str
    section: str
    tags: tuple[str, ...]
    titles: tuple[str, ...]
    sentences: tuple[str, ...]


def read_lines(name: str) -> list[str]:
    """Return the lines of one of the corpus's files, without empty lines and comments."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def seeded(*parts: object) -> random.Random:
    """Return a random generator that is always the same for the same parts."""
    return random.Random(zlib.crc32("/".join(map(str, parts)).encode()))  # noqa: S311 - repeatable, not secret


@cache
def channels() -> dict[tuple[str, str], list[FeedChannel]]:
    """Return the channels by language and section."""
    found: dict[tuple[str, str], list[FeedChannel]] = {}
    for line in read_lines("channels.txt"):
        language, section, site, title, authors = line.split("|")
        one = FeedChannel(language, section, site, title, tuple(authors.split(", ")))
        found.setdefault((language, section), []).append(one)
    return found


@cache
def stories(language: str) -> tuple[Story, ...]:
    """Return the stories of a language."""
    found = []
    for line in read_lines(f"stories/{language}.txt"):
        head, _, rest = line.partition(" || ")
        names, *titles = head.split(" | ")
        name, _, tags = names.partition(" #")
        section = _SECTIONS.get(name.partition("/")[0], "local")
        found.append(Story(name, section, tuple(tags.split(",")), tuple(titles), tuple(rest.split(" | "))))
    return tuple(found)


def make_document(number: str, channel: FeedChannel, title: str, text: str, tags: tuple[str, ...]) -> Document:
    """Return a document whose author and date are chosen by its number, which is unique."""
    drawn = seeded(number)
    date = FIRST_DAY + dt.timedelta(days=drawn.randrange(DAYS))
    return Document(number, channel, title, text, tags, drawn.choice(channel.authors), date)


def story_documents(language: str) -> Iterator[Document]:
    """Yield the entries of a language's stories: one for each title."""
    for story in stories(language):
        day = FIRST_DAY + dt.timedelta(days=seeded(language, story.name).randrange(DAYS))
        for number, title in enumerate(story.titles):
            channel = channels()[language, story.section][number % 2]
            document = make_document(
                f"{language}/{story.name}/{number}", channel, title, _select_sentences(story, number), story.tags
            )
            yield document._replace(story=story.name, date=day + dt.timedelta(days=number))


def round_ups(language: str) -> Iterator[Document]:
    """Yield the round-ups of a language: each mentions three stories of a section, and every story is in one."""
    label, names = _ROUND_UPS[language]
    for section, name in names.items():
        chosen = [story for story in stories(language) if story.section == section]
        seeded("round-up", language, section).shuffle(chosen)
        for first in range(0, len(chosen) - 2, 3):
            some = chosen[first : first + 3]
            text = " ".join(f"{story.titles[-1]}: {story.sentences[-1]}" for story in some)
            channel = channels()[language, section][first % 2]
            yield make_document(f"{language}/round-up/{section}/{first}", channel, f"{label}: {name}", text, (name,))


def _select_sentences(story: Story, number: int) -> str:
    """Return the text of a story's entry; the entries of a story together have all of its sentences.

    The first entry begins at the beginning; the second continues from the end; the third begins with the second
    sentence.
    """
    first, *others = story.sentences
    order = ([first, *others], [first, *reversed(others)], [*others, first])[number]
    count = max(3, len(story.sentences) // 2 + 1)
    while len(" ".join(order[:count]).split()) < MIN_WORDS and count < len(order):
        count += 1
    return " ".join(order[:count])
