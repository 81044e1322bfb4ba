"""What the programs and their parser children say to each other: msgpack, after its length in 4 bytes."""

from typing import Any

import msgspec

from service.errors import Fault
from service.model import FeedLink, ParsedFeed

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Reading(msgspec.Struct, frozen=True):
    """What a document turned out to be: a feed, or (``feed`` is None) a page that names feeds."""

    feed: ParsedFeed | None
    links: tuple[FeedLink, ...] = ()


class Job(msgspec.Struct, frozen=True, array_like=True):
    """One document to read."""

    body: bytes
    url: str
    headers: dict[str, str]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """How it went. ``bloated``: the child has grown so much that it should be replaced."""

    reading: Reading | None = None
    fault: Fault | None = None
    bloated: bool = False


def frame(message: Any) -> bytes:
    """Return the message as bytes to send."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
