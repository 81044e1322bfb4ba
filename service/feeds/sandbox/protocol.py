"""The messages between a program and its parser processes: msgpack, each message preceded by its length in 4 bytes."""

from math import inf
from typing import Any, Generic, Literal, TypeVar

import msgspec

from service.errors import Fault
from service.feeds.opml_writer import OpmlDocument
from service.model import Change, Entry, FeedLink, FeedMetadata, ParsedFeed, ParsedPage, PollingHints

Confinement = Literal["seccomp", "rlimits"]
"""The means that keep a parser process from files and network: a system call filter, or resource limits alone."""

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Document(msgspec.Struct, frozen=True, array_like=True):
    """A response body, the URL from which it was fetched, and the response headers that are needed to read it.

    Header names are in lower case. ``partial`` states that the body has only new entries: it is an RFC 3229 delta, or a
    WebSub hub has pushed it.
    """

    body: bytes
    url: str
    headers: dict[str, str]
    partial: bool = False

    @property
    def is_page(self) -> bool:
        """Whether the Content-Type header declares HTML."""
        return "html" in self.headers.get("content-type", "").lower()


class ParsedDocument(msgspec.Struct, frozen=True, array_like=True):
    """The result of parsing one document: a feed, or a page and the feeds to which it links."""

    feed: ParsedFeed | None = None
    page: ParsedPage | None = None
    links: tuple[FeedLink, ...] = ()


class DetectionResult(msgspec.Struct, frozen=True, array_like=True):
    """The changes in the documents of a feed or page, and its next baseline.

    - ``baseline`` is the encoded state by which changes are detected.
    - ``latest`` are the latest entries, newest first; set only if there was no baseline before.
    - ``older_url`` is the URL of the document with the next older entries; set only if polls have missed entries.
    - ``links`` is set only if the document turned out to be an HTML page instead of a feed. It then has the feeds to
      which the page links, and nothing else is set.
    """

    baseline: bytes = b""
    changes: tuple[Change, ...] = ()
    latest: tuple[Entry, ...] = ()
    title: str = ""
    link: str = ""
    polling_hints: PollingHints = PollingHints()
    hubs: tuple[str, ...] = ()
    topic: str = ""
    older_url: str = ""
    links: tuple[FeedLink, ...] = ()
    language: str = ""
    metadata: FeedMetadata = FeedMetadata()


class ParseDocument(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to parse a document of unknown type. ``selector`` (CSS) limits a page to matching elements."""

    document: Document
    selector: str = ""


class DetectChanges(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to compare the ``documents`` of the channel ``url`` (a feed or page) with the channel's baseline.

    - ``documents`` are in order from the oldest to the newest.
    - ``baseline`` is the encoded state by which changes are detected; ``b""`` if there is none yet.
    - ``cpu_s`` is the limit of processor time in seconds, besides the limit for all requests. The parser process is
      killed if the comparison takes more.
    """

    documents: tuple[Document, ...]
    baseline: bytes
    url: str
    kind: Literal["feed", "page"]
    now_s: float
    cpu_s: float = inf


class ParseOpml(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to parse an OPML file."""

    body: bytes


ParserRequest = ParseDocument | DetectChanges | ParseOpml


Result = TypeVar("Result", ParsedDocument, DetectionResult, OpmlDocument)


class ParserResponse(msgspec.Struct, Generic[Result], frozen=True, array_like=True):
    """The result of a request, or the fault that ended it.

    - ``confinement`` is the kernel feature that confines the parser process.
    - ``needs_restart`` states that the process uses so much memory that it should be replaced.
    - ``cpu_s`` is the processor time that the request took, in seconds.
    """

    result: Result | None
    fault: Fault | None
    confinement: Confinement
    needs_restart: bool
    cpu_s: float


def encode_frame(message: Any) -> bytes:
    """Return the message in msgpack, preceded by its length."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
