"""A publisher that writes articles and, besides, does everything to its feed that publishers do."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from service.model import ParsedEntry
from tests.support.documents import atom, item, rss

HABITS = ("stable", "permalinks", "none", "shared", "recycled", "changing", "text only")
"""How it makes ids; ``text only``: it makes neither ids nor links."""

_RECYCLED_AFTER = 25
_SHORTEST = 5
_LONGEST = 20


class Publisher:
    """Lists its latest articles, the newest first unless it is told otherwise.

    ``listed_ever`` are the numbers of all articles that it has listed: each is news exactly once.
    """

    def __init__(self, habit: str, seed: int = 0) -> None:
        self.listed_ever: set[int] = set()
        self._habit = habit
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret
        self._articles: list[ParsedEntry] = []
        self._size = 10
        self._order: Callable[[list[ParsedEntry]], Sequence[ParsedEntry]] = list
        self._vanished = False
        self._served = 0
        self._build = rss
        self._charset = "utf-8"

    def write(self, count: int = 1) -> None:
        """Write articles."""
        for number in range(len(self._articles), len(self._articles) + count):
            self._articles.append(
                item(
                    f"{number}",
                    number=number,
                    title=f"Article {number} of Zoë",
                    summary=f"<p>What {number} says.</p>",
                    link="" if self._habit == "text only" else f"https://example.com/articles/{number}",
                )
            )

    def misbehave(self, how: str) -> None:
        """Do one of ``MISBEHAVIOUR``."""
        MISBEHAVIOUR[how](self)

    def listing(self) -> list[ParsedEntry]:
        """Return what it lists now."""
        latest = [] if self._vanished else list(enumerate(self._articles))[-self._size :]
        self.listed_ever |= {number for number, _ in latest}
        self._served += 1
        entries = [msgspec.structs.replace(entry, id=self._id(number)) for number, entry in reversed(latest)]
        return list(self._order(entries))

    def document(self) -> tuple[bytes, str]:
        """Return what it lists now as a document, and its content type."""
        text = self._build(self.listing()).decode().replace('encoding="utf-8"', f'encoding="{self._charset}"')
        return text.encode(self._charset, "xmlcharrefreplace"), f"text/xml; charset={self._random_charset()}"

    def _id(self, number: int) -> str:
        return {
            "stable": f"tag:example.com,2024:{number}",
            "permalinks": f"https://example.com/articles/{number}",
            "shared": "https://example.com/",
            "recycled": f"urn:example:{number % _RECYCLED_AFTER}",
            "changing": f"{self._served}-{number}",
        }.get(self._habit, "")

    def _random_charset(self) -> str:
        return self._random.choice(["utf-8", self._charset, "nonsense"])

    def _edit(self, **fields: str) -> None:
        if self._articles and self._habit != "text only":  # an edited text is another text
            place = max(0, len(self._articles) - 1 - self._random.randrange(3))
            self._articles[place] = msgspec.structs.replace(self._articles[place], **fields)

    def _redate(self) -> None:
        date = self._random.choice([None, 0.0, 1.0e9, 1.8e9, 4.0e9])
        self._articles = [msgspec.structs.replace(each, published=date) for each in self._articles]

    def _rewrap(self) -> None:
        """Change what means nothing: markup, white space, the scheme of links and their tracking parameters."""
        mark = self._random.randrange(1000)
        self._articles = [
            msgspec.structs.replace(
                each,
                title=f" {each.title.strip()}  ",
                summary=f"{each.summary.partition('<img')[0]}<img src='/{mark}.gif'>",
                link=each.link
                and f"http://www.example.com/{each.link.split('/', 3)[3].partition('?')[0]}?utm_source={mark}",
            )
            for each in self._articles
        ]

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
    "retitle": lambda publisher: publisher._edit(title=f"Corrected {publisher._random.random()}"),
    "rewrite": lambda publisher: publisher._edit(summary=f"Rewritten {publisher._random.random()}"),
    "re-date": Publisher._redate,
    "re-wrap": Publisher._rewrap,
    "re-order": Publisher._reorder,
    "list more or fewer": Publisher._resize,
    "vanish or return": Publisher._vanish,
    "change the dialect": Publisher._change_dialect,
    "change the charset": Publisher._change_charset,
}
