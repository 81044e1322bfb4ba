"""An entry's categories as feedparser collects them: none twice, in the order of the document."""

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
