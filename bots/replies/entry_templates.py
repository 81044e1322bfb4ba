"""How somebody wants entries written: ``$title: $link ($date)``. Pure.

A template is put together once per entry, from values that stand on one line each; nothing in a value is looked at
again, so what a publisher writes stays what it is.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from bots.i18n.translator import Translator
from service.feeds.parsing.html_text import one_line
from service.model import Entry

MOST_CHARS: Final = 500
MOST_LINES: Final = 10
VARIABLES: Final = ("channel", "title", "link", "date", "summary", "author", "tags")

_VARIABLE = re.compile(r"\$(?:(?P<doubled>\$)|\{(?P<braced>\w+)\}|(?P<plain>\w+))")


class Template(msgspec.Struct, frozen=True):
    """A template, and the zone whose clock its dates go by."""

    text: str
    zone: str

    @property
    def names_channel(self) -> bool:
        """Whether the channel's title stands in it, so that it need not stand above."""
        return any(not found["doubled"] and _named(found) == "channel" for found in _VARIABLE.finditer(self.text))

    def fill(self, entry: Entry, channel: str, summary_chars: int, translator: Translator) -> str:
        """Return an entry of the channel of this title as the template has it, with so much of its text; maybe ""."""
        known: dict[str, Callable[[], str]] = {
            "channel": lambda: channel,
            "title": lambda: one_line(entry.title, 300),
            "link": lambda: one_line(entry.link, 2000),
            "date": lambda: (
                translator.format_datetime(entry.published, self.zone) if entry.published is not None else ""
            ),
            "summary": lambda: one_line(entry.summary, summary_chars) if summary_chars else "",
            "author": lambda: one_line(", ".join(entry.authors), 200),
            "tags": lambda: one_line(", ".join(entry.tags), 200),
        }
        filled = _VARIABLE.sub(lambda found: "$" if found["doubled"] else known[_named(found)](), self.text)
        # What has no value leaves no empty line behind.
        return "\n".join(line.strip() for line in filled.splitlines() if line.strip())


def tidy(text: str) -> str:
    """Return a template as it is kept: a backslash and an ``n`` begin a line, as a line's end does."""
    lines = text.replace("\\n", "\n").strip().splitlines()
    return "\n".join(one_line(line, MOST_CHARS) for line in lines)


def fits(text: str) -> bool:
    """Say whether a tidy template is short enough."""
    return len(text) <= MOST_CHARS and text.count("\n") < MOST_LINES


def strangers(text: str) -> tuple[str, ...]:
    """Return the variables of a template that do not exist, each once."""
    named = (_named(found) for found in _VARIABLE.finditer(text) if not found["doubled"])
    return tuple(dict.fromkeys(name for name in named if name not in VARIABLES))


def _named(found: re.Match[str]) -> str:
    return (found["braced"] or found["plain"]).lower()
