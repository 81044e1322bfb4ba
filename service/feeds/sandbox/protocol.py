"""What the programs and their parser children say to each other: msgpack, after its length in 4 bytes."""

from math import inf
from typing import Any, Generic, Literal, TypeVar

import msgspec

from service.errors import Fault
from service.feeds.opml import OpmlDocument
from service.model import Change, Entry, FeedLink, FeedMetadata, ParsedFeed, ParsedPage, PollingHints

Confinement = Literal["seccomp", "rlimits"]
"""What keeps a parser process from files and network: a filter of system calls, or resource limits alone."""

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Document(msgspec.Struct, frozen=True, array_like=True):
    """A body as it came from ``url``, with the headers that say how to read it.

    ``partial``: it holds only what is new (RFC 3229, or pushed by a hub).
    """

    body: bytes
    url: str
    headers: dict[str, str]
    partial: bool = False

    @property
    def is_page(self) -> bool:
        """Whether the publisher calls it a page."""
        return "html" in self.headers.get("content-type", "").lower()


class ParsedDocument(msgspec.Struct, frozen=True, array_like=True):
    """What a document turned out to be: a feed, or a page, which may name feeds."""

    feed: ParsedFeed | None = None
    page: ParsedPage | None = None
    links: tuple[FeedLink, ...] = ()


class DetectionResult(msgspec.Struct, frozen=True, array_like=True):
    """What documents of a channel say besides what was remembered of it, and what is remembered from then on.

    ``latest`` (newest first) is there where nothing was remembered. ``older`` is where the channel goes on with
    older entries, if polls have missed some. A page that should be a feed has only ``links``, to feeds.
    """

    memory: bytes = b""
    changes: tuple[Change, ...] = ()
    latest: tuple[Entry, ...] = ()
    title: str = ""
    link: str = ""
    wishes: PollingHints = PollingHints()
    hubs: tuple[str, ...] = ()
    topic: str = ""
    older: str = ""
    links: tuple[FeedLink, ...] = ()
    language: str = ""
    imprint: FeedMetadata = FeedMetadata()


class ParseDocument(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Say what this document is, whatever it is; ``selector`` is for pages."""

    document: Document
    selector: str = ""


class DetectChanges(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compare documents of the channel ``url``, oldest first, with what is remembered of it (nothing: ``b""``).

    The child is killed when that takes more than ``cpu_s`` of processor time, or than it gives any document.
    """

    documents: tuple[Document, ...]
    memory: bytes
    url: str
    kind: Literal["feed", "page"]
    now_s: float
    cpu_s: float = inf


class ParseOpml(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Say which feeds this OPML file lists."""

    body: bytes


ParserRequest = ParseDocument | DetectChanges | ParseOpml


class ParserReady(msgspec.Struct, frozen=True, array_like=True):
    """What a parser process says first, once it is confined."""

    confinement: Confinement


Result = TypeVar("Result", ParsedDocument, DetectionResult, OpmlDocument)


class ParserResponse(msgspec.Struct, Generic[Result], frozen=True, array_like=True):
    """A job's result, or the fault that ended it.

    ``bloated``: the child has grown so much that it should be replaced. ``cpu_s`` is the processor time of the job.
    """

    result: Result | None = None
    fault: Fault | None = None
    bloated: bool = False
    cpu_s: float = 0.0


def encode_frame(message: Any) -> bytes:
    """Return the message as bytes to send."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
