"""A reader that polls a page repeatedly."""

from collections.abc import Sequence

import msgspec

from service.feeds.pages.content_extraction import parse_page
from service.feeds.pages.page_change_detection import PageState, detect_page_changes
from service.model import Change, ParsedPage

URL = "https://example.com/page"
START_S = 1_800_000_000.0
HOUR_S = 3600.0


class Reader:
    """A channel that polls a page: the page's stored state and the time."""

    def __init__(self, first: str, second: str | None = None) -> None:
        """Poll the page twice within 5 s, with the HTML ``first`` and ``second``, as for a new subscription."""
        self.now_s = START_S
        self.state: PageState | None = None
        self.look(parsed(first), after_s=0)
        self.look(parsed(first if second is None else second), after_s=5)

    def look(self, page: ParsedPage, *, after_s: float = HOUR_S) -> tuple[Change, ...]:
        """Poll ``page`` after ``after_s`` seconds; return the changes.

        The state is encoded and decoded as in the store.
        """
        self.now_s += after_s
        decision = detect_page_changes(self.state, page, url=URL, now_s=self.now_s)
        self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(decision.state), type=PageState)
        return decision.changes

    def sees(self, markup: str, *, after_s: float = HOUR_S) -> list[tuple[str, str, str]]:
        """Poll a page with the HTML ``markup``; return the kind, text and previous text of each change."""
        changes = self.look(parsed(markup), after_s=after_s)
        return [(change.kind, change.entry.summary, change.before) for change in changes]


def parsed(markup: str) -> ParsedPage:
    """Return the parsed page of this HTML."""
    return parse_page(markup.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


def patched(old: Sequence[str], changes: Sequence[Change]) -> list[str]:
    """Apply changes to the lines ``old`` like ``patch``; assert that positions, kinds and texts are consistent."""
    new: list[str] = []
    taken = 0
    for change in changes:
        text = change.entry.summary.split("\n")
        kept = change.line - 1 - (taken if change.kind == "omission" else len(new))
        new += old[taken : taken + kept]
        taken += kept
        if change.kind == "omission":
            assert list(old[taken : taken + len(text)]) == text
            taken += len(text)
            continue
        before = change.before.split("\n") if change.before else []
        assert list(old[taken : taken + len(before)]) == before
        taken += len(before)
        new += text
    return [*new, *old[taken:]]
