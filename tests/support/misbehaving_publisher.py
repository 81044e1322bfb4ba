"""A publisher whose feed misbehaves in all ways that occur in practice."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from service.model import ParsedEntry
from tests.support.feed_documents import atom, item, rss

HABITS = ("stable", "permalinks", "none", "shared", "recycled", "changing", "text only")
"""Ways in which the feed generates ids of entries; ``text only``: entries have neither ids nor links."""

_RECYCLED_AFTER = 25
_CORRECTED_EVERY = 6
_EDITS = 2
_SHORTEST = 5
_LONGEST = 20


class Publisher:
    """A feed with its latest articles, newest first by default.

    ``news`` are the numbers of the articles that are new in the last listing, ``corrections`` those with a changed
    title or text. Every sixth article can be corrected. Each text contains a reader counter and a number of comments,
    which are not part of the article.
    """

    def __init__(self, habit: str, seed: int = 0) -> None:
        self.habit = habit
        self.news: list[int] = []
        self.corrections: list[int] = []
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret
        self._articles: list[ParsedEntry] = []
        self._listed: dict[int, tuple[str, str]] = {}
        self._readers: list[int] = []
        self._edits: Counter[tuple[int, str]] = Counter()
        self._size = 10
        self._order: Callable[[list[ParsedEntry]], Sequence[ParsedEntry]] = list
        self._vanished = False
        self._served = 0
        self._build = rss
        self._charset = "utf-8"
        self._dress: Callable[[ParsedEntry], ParsedEntry] = lambda entry: entry

    def write(self, count: int = 1) -> None:
        """Add ``count`` articles."""
        for number in range(len(self._articles), len(self._articles) + count):
            self._readers.append(0)
            self._articles.append(
                item(
                    f"{number}",
                    number=number,
                    title=f"Article {number} of Zoë",
                    summary=f"What {number} says.",
                    link=f"https://example.com/articles/{number}",
                )
            )

    def misbehave(self, how: str) -> None:
        """Apply a misbehaviour of ``MISBEHAVIOUR`` by name."""
        MISBEHAVIOUR[how](self)

    def listing(self) -> list[ParsedEntry]:
        """Return the entries in the feed now; update ``news`` and ``corrections``."""
        numbers = self._present()
        said = {number: (self._articles[number].title, self._articles[number].summary) for number in numbers}
        self.news = [number for number in numbers if number not in self._listed]
        self.corrections = [number for number in numbers if self._listed.get(number, said[number]) != said[number]]
        self._listed |= said
        self._served += 1
        return list(self._order([self._dress(self._shown(number)) for number in reversed(numbers)]))

    def document(self) -> tuple[bytes, str]:
        """Return the feed document with its content type."""
        text = self._build(self.listing()).decode().replace('encoding="utf-8"', f'encoding="{self._charset}"')
        return text.encode(self._charset, "xmlcharrefreplace"), f"text/xml; charset={self._random_charset()}"

    def _present(self) -> range:
        """Return the numbers of the articles in the feed now."""
        return range(0) if self._vanished else range(max(0, len(self._articles) - self._size), len(self._articles))

    def _shown(self, number: int) -> ParsedEntry:
        article, readers = self._articles[number], self._readers[number]
        return msgspec.structs.replace(
            article,
            id=self._id(number),
            link="" if self.habit == "text only" else article.link,
            summary=f"<p>{article.summary}</p> <p>Read {readers} times, {readers // 9} comments, ref={readers:08x}</p>",
        )

    def _id(self, number: int) -> str:
        return {
            "stable": f"tag:example.com,2024:{number}",
            "permalinks": f"https://example.com/articles/{number}",
            "shared": "https://example.com/",
            "recycled": f"urn:example:{number % _RECYCLED_AFTER}",
            "changing": f"{self._served}-{number}",
        }.get(self.habit, "")

    def _random_charset(self) -> str:
        return self._random.choice(["utf-8", self._charset, "nonsense"])

    def _edit(self, field: str, texts: Sequence[str]) -> None:
        """Edit the title or text of a listed article; texts alternate, so that edits are also reverted."""
        some = [number for number in self._present() if number % _CORRECTED_EVERY == 0]
        if some and self.habit != "text only":  # an edited text is another text
            number = self._random.choice(some)
            if self._edits[number, field] < _EDITS:
                self._edits[number, field] += 1
                text = texts[self._edits[number, field] % len(texts)].format(number)
                self._articles[number] = msgspec.structs.replace(self._articles[number], **{field: text})

    def _count(self) -> None:
        """Change the reader counters of articles."""
        if self.habit != "text only":
            for number in self._present():
                self._readers[number] += self._random.randrange(1000)

    def _redate(self) -> None:
        date = self._random.choice([None, 0.0, 1.0e9, 1.8e9, 4.0e9])
        self._articles = [msgspec.structs.replace(each, published=date, updated=date) for each in self._articles]

    def _rewrap(self) -> None:
        """Change insignificant details: markup, white space, letter case, scheme and tracking parameters of links."""
        mark = self._random.randrange(1000)
        case = self._random.choice(["upper", "title", "strip"])
        self._dress = lambda entry: msgspec.structs.replace(
            entry,
            title=f" {getattr(entry.title, case)()}  ",
            summary=f"<div>\n{entry.summary}<img src='/{mark}.gif'></div>",
            link=entry.link and f"http://www.example.com/{entry.link.split('/', 3)[3]}?utm_source={mark}",
        )

    def _reorder(self) -> None:
        self._order = self._random.choice(
            [list, lambda entries: entries[::-1], lambda entries: self._random.sample(entries, len(entries))]
        )

    def _resize(self) -> None:
        self._size = self._random.randint(_SHORTEST, _LONGEST)

    def _vanish(self) -> None:
        self._vanished = not self._vanished

    def _change_dialect(self) -> None:
        self._build = atom if self._build is rss else rss

    def _change_charset(self) -> None:
        self._charset = self._random.choice(["utf-8", "windows-1251", "iso-8859-1", "gb18030", "utf-16"])


MISBEHAVIOUR: dict[str, Callable[[Publisher], None]] = {
    "nothing": lambda _: None,
    "retitle": lambda publisher: publisher._edit("title", ["Article {} of Zoë", "Corrected: article {}"]),
    "rewrite": lambda publisher: publisher._edit("summary", ["What {} says.", "What {} says, in other words."]),
    "count": Publisher._count,
    "re-date": Publisher._redate,
    "re-wrap": Publisher._rewrap,
    "re-order": Publisher._reorder,
    "list more or fewer": Publisher._resize,
    "vanish or return": Publisher._vanish,
    "change the dialect": Publisher._change_dialect,
    "change the charset": Publisher._change_charset,
}
