"""What the sample publisher has published: kept in journals, shown as RSS 2.0.

``published.jsonl`` is both the publisher's memory, so that a restart continues it, and its
testimony of what people should have been told. ``requests.jsonl`` is its testimony of who asked
for what, and when.
"""

import html
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

FEED_LENGTH = 20
"""Entries a feed shows; older ones have scrolled out, as everywhere."""


class Published(msgspec.Struct, frozen=True):
    """One entry, as it was published (``published_s`` is Unix time)."""

    feed: int
    id: str
    link: str
    title: str
    published_s: float


class Asked(msgspec.Struct, frozen=True):
    """One request, as it was answered (``at_s`` is Unix time)."""

    at_s: float
    path: str
    status: int
    user_agent: str
    conditional: bool


Line = TypeVar("Line", bound=msgspec.Struct)


class Journal(Generic[Line]):
    """An append-only file of JSON lines; what kill -9 cut short at its end was never written."""

    def __init__(self, path: Path, kind: type[Line]) -> None:
        path.touch(mode=0o600)
        self._kind = kind
        self._path = path
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        self._path.write_bytes(whole + b"\n" if whole else b"")

    def append(self, line: Line) -> None:
        """Write one line; on return the kernel has it."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def lines(self) -> list[Line]:
        """Return every line, oldest first."""
        return [msgspec.json.decode(line, type=self._kind) for line in self._path.read_bytes().splitlines()]


def rss(title: str, link: str, entries: Sequence[Published]) -> bytes:
    """Return the document that shows the latest of these entries (oldest first), newest on top."""
    items = "".join(_item(entry) for entry in reversed(entries[-FEED_LENGTH:]))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>'
        f"<title>{html.escape(title)}</title><link>{html.escape(link)}</link>"
        f"<description>Made up on this machine, to try Coronet with.</description>\n{items}</channel></rss>\n"
    ).encode()


def _item(entry: Published) -> str:
    return (
        f'<item><guid isPermaLink="false">{entry.id}</guid><title>{html.escape(entry.title)}</title>'
        f"<link>{entry.link}</link><pubDate>{formatdate(entry.published_s, usegmt=True)}</pubDate></item>\n"
    )


def unchanged_since(entries: Sequence[Published], since_s: int) -> bool:
    """Whether a reader whose copy carries this ``Last-Modified`` (whole seconds) has them all.

    Two entries within one second leave that open; the answer is then no (RFC 9110, 8.8.2.2).
    """
    newer = [entry for entry in entries if int(entry.published_s) >= since_s]
    return len(newer) <= 1 and all(int(entry.published_s) == since_s for entry in newer)
