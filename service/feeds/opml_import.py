"""Data types of imports of OPML lists in the background, and the file that lists the feeds that could not be added."""

from collections.abc import Iterable
from typing import Final

import msgspec

from service.errors import CoronetError, Fault
from service.feeds.opml_writer import OpmlSubscription

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")

ImportOutcome = bool | CoronetError
"""What became of a feed: whether it is new, or the error if it could not be added."""


class QueuedFeed(OpmlSubscription, frozen=True, omit_defaults=True):
    """A feed that is still to be added. ``line`` is its line in the OPML file; 0 if it is not known."""

    line: int = 0


class FailedFeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed that could not be added, or a problem of the OPML file.

    ``line`` is the line in the file; 0 if it is not known. For a problem of the file, ``url`` is "", and the text of
    ``fault`` contains the line.
    """

    fault: Fault
    url: str = ""
    line: int = 0


class ImportProgress(msgspec.Struct, frozen=True):
    """How far an import of an OPML file is.

    ``new`` feeds were added, ``existing`` ones had been added before, ``failed`` ones could not be added, and
    ``pending`` ones are left. ``started_s`` and ``ended_s`` are Unix times; ``ended_s`` is 0 until the end.
    """

    id: str
    new: int
    existing: int
    failed: int
    pending: int
    started_s: float
    ended_s: float = 0.0

    @property
    def done(self) -> int:
        """The number of feeds whose outcome is recorded."""
        return self.new + self.existing + self.failed

    @property
    def total(self) -> int:
        """The number of all feeds of the import."""
        return self.done + self.pending


def write_failures(rows: Iterable[tuple[int, str, str]]) -> bytes:
    """Return a CSV file (RFC 4180) of feeds that could not be added: the line in the list, the URL and the reason.

    No cell begins like a formula, because spreadsheets would evaluate it.
    """
    cells = [("line", "url", "reason"), *((str(line or ""), url, reason) for line, url, reason in rows)]
    return "".join(f"{','.join(map(_quote, row))}\r\n" for row in cells).encode()


def _quote(text: str) -> str:
    mark = "'" if text.startswith(_FORMULA_STARTS) else ""
    quoted = text.replace('"', '""')
    return f'"{mark}{quoted}"'
