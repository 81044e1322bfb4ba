"""Subscriptions as OPML documents: one, or several that fit messages and can be imported alone. Pure."""

from collections.abc import Sequence

from service.feeds import opml
from service.feeds.opml import Subscribed

_TITLE = "Coronet"


def documents(feeds: Sequence[Subscribed], most_bytes: int) -> list[str]:
    """Return the feeds as OPML documents of at most so many bytes each, in order.

    What does not fit even alone, for its address is too long, is left out.
    """
    empty_bytes = _size_bytes([])
    parts: list[list[Subscribed]] = [[]]
    size_bytes = empty_bytes
    for feed in feeds:
        grows_bytes = _size_bytes([feed]) - empty_bytes
        if empty_bytes + grows_bytes > most_bytes:
            continue
        if size_bytes + grows_bytes > most_bytes:
            parts.append([])
            size_bytes = empty_bytes
        parts[-1].append(feed)
        size_bytes += grows_bytes
    return [_written(part) for part in parts if part]


def whole(feeds: Sequence[Subscribed]) -> bytes:
    """Return the feeds as one OPML document, however long."""
    return opml.write(_TITLE, feeds)


def _written(feeds: Sequence[Subscribed]) -> str:
    return whole(feeds).decode().strip()


def _size_bytes(feeds: Sequence[Subscribed]) -> int:
    return len(_written(feeds).encode())
