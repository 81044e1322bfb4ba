"""Subscriptions as OPML documents: one, or several that fit messages and can be imported alone. Pure."""

from collections.abc import Sequence

from service.feeds import opml
from service.feeds.opml import Subscribed

_TITLE = "Coronet"


def documents(feeds: Sequence[Subscribed], most_bytes: int) -> list[str]:
    """Return the feeds as OPML documents of at most so many bytes each, in order.

    What does not fit even alone, for its address is too long, is left out.
    """
    found: list[str] = []
    rest = list(feeds)
    while rest:
        fitting = _fitting(rest, most_bytes)
        if fitting:
            found.append(_written(rest[:fitting]))
        rest = rest[max(fitting, 1) :]
    return found


def whole(feeds: Sequence[Subscribed]) -> bytes:
    """Return the feeds as one OPML document, however long."""
    return opml.write(_TITLE, feeds)


def _fitting(feeds: Sequence[Subscribed], most_bytes: int) -> int:
    """Return how many of the first feeds fit one document, found by halving: each more makes it longer."""
    fits, too_many = 0, len(feeds) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(_written(feeds[:middle]).encode()) <= most_bytes:
            fits = middle
        else:
            too_many = middle
    return fits


def _written(feeds: Sequence[Subscribed]) -> str:
    return whole(feeds).decode().strip()
