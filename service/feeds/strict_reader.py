"""A walk through a well-formed feed, and what has been found on it."""

from collections.abc import Callable

from service.feeds.familiar import Marks, Unread
from service.feeds.limits import ABSOLUTE_URL
from service.feeds.strict_text import Declined, Element, Names, attributes, mended, text_of

Tag = tuple[str | None, str | None, str | None]
"""A category: its term, scheme and label, any of which may be missing or empty."""


class Tags:
    """The categories so far."""

    __slots__ = ("_known", "_listed")

    def __init__(self) -> None:
        self._listed: list[Tag] = []
        self._known: set[Tag] = set()

    def names(self) -> list[str | None]:
        """Return what people call them."""
        return [label or term for term, _, label in self._listed]

    def add(self, tag: Tag) -> None:
        """Add a category that says anything and is not there yet."""
        if tag not in self._known and any(tag):
            self._known.add(tag)
            self._listed.append(tag)

    def take_in(self, tag: Tag, text: str) -> None:
        """Add an element's category; its text is the term that the last category lacks, or another category."""
        if any(tag):
            self.add(tag)
        if not text:
            return
        if self._listed and not self._listed[-1][0]:
            lacking = self._listed.pop()
            self._known.discard(lacking)
            self._listed.append((text, *lacking[1:]))
            self._known.add(self._listed[-1])
        else:
            self.add((text, None, None))


_UNREAD = -2
HINTS = {"ttl", "sy_updateperiod", "sy_updatefrequency"}


class Fields:
    """What an entry, or the feed itself, has said so far. ``depths``: how deep in the document it said it."""

    __slots__ = (
        "authors", "contents", "depths", "generator", "hints", "id", "is_entry", "language", "link", "links",
        "published", "summary", "tags", "title", "title_type", "updated",
    )  # fmt: skip

    def __init__(self, *, is_entry: bool, language: str = "") -> None:
        self.is_entry = is_entry
        self.language = language
        self.id = self.title = self.title_type = ""
        self.link: str | None = None
        self.summary: str | None = None
        self.contents: list[str] = []
        self.authors: list[str] = []
        self.tags = Tags()
        self.links: list[tuple[str, str | None]] = []
        self.hints: dict[str, str] = {}
        self.generator: tuple[str, str | None] = ("", None)
        self.published: float | None = None
        self.updated: float | None = None
        self.depths: dict[str, int] = {}

    def may_say(self, name: str, depth: int) -> bool:
        """Say whether what stands at this depth replaces what was said before: in an entry, not what is deeper."""
        if self.is_entry and depth > self.depths.get(name, depth):
            return False
        self.depths[name] = depth
        return True


class Reader:
    """One walk through a document. ``fields`` and ``base`` are those of the innermost entry or feed.

    If there are ``marks``, it goes past entries that are familiar.
    """

    def __init__(self, names: Names, *, speaks_atom: bool, base: str, fields: Fields, marks: Marks | None) -> None:
        self.names = names
        self.marks = marks
        self.speaks_atom = speaks_atom
        self._dialect = " Atom " if speaks_atom else " RSS "
        self.base = base
        self.fields = fields
        self.entries: list[Fields] = []
        self.title_depth = -1
        self.has_content = False

    def read(self, parent: Element, depth: int, meanings: dict[str, "Meaning"]) -> None:
        """Take in the children of ``parent``, which stand at ``depth``."""
        names = self.names
        for element in parent:
            name = names[element.tag]
            meaning = meanings.get(name)
            if meaning:
                meaning(self, element, depth)
            elif name in HINTS or len(element):
                self._pass_over(element, depth, name, meanings)

    def is_familiar(self, element: Element, depth: int) -> bool:
        """Say whether to go past an entry. Whether its title counts for those that come after it is not known then."""
        if not self.marks or not self.marks.passes_over(element, f"{depth}{self._dialect}{self.base}"):
            return False
        self.title_depth = _UNREAD
        return True

    def title_counts(self, depth: int) -> bool:
        """Say whether a title counts: not if one that is no deeper has come before. Raises :class:`Unread`."""
        if self.title_depth == _UNREAD:
            raise Unread
        return not -1 < self.title_depth <= depth

    def _pass_over(self, element: Element, depth: int, name: str, meanings: dict[str, "Meaning"]) -> None:
        """Go on within an element that means nothing to feedparser."""
        if name in HINTS:
            self.fields.hints[name] = "" if element.items() else mended(text_of(element))
        if len(element):
            if based(attributes(element), self.base) != self.base:
                raise Declined
            self.read(element, depth + 1, meanings)


Meaning = Callable[[Reader, Element, int], None]
"""Takes in an element that stands at a depth."""


def based(found: dict[str, str], base: str) -> str:
    """Return the base of links within an element that has these attributes."""
    given = found.get("xml:base", found.get("base"))
    if given and not ABSOLUTE_URL.fullmatch(given):
        raise Declined
    return given or base
