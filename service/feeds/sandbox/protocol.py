"""The messages between a program and its parser processes.

They are encoded as msgpack, and each message is preceded by its length in 4 bytes.
"""

from math import inf
from typing import Any, Generic, Literal, TypeVar

import msgspec

from service.errors import Fault
from service.feeds.opml_writer import OpmlDocument
from service.model import Change, Entry, FeedLink, FeedMetadata, ParsedFeed, ParsedPage, PollingHints

Confinement = Literal["seccomp", "rlimits"]
"""The kernel feature that denies a parser process access to files and network: a system call filter (seccomp), or only
resource limits (rlimits)."""

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Document(msgspec.Struct, frozen=True, array_like=True):
    """A response body, the URL from which it was fetched, and the response headers that are needed to read it.

    Header names are in lower case. ``partial`` is true if the body contains only new entries, because it is an RFC 3229
    delta or was pushed by a WebSub hub.
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
    """The result of parsing one document: a feed or a page.

    For a feed, only ``feed`` is set. For a page, ``page`` is set, and ``links`` are the feeds to which the page links.
    """

    feed: ParsedFeed | None = None
    page: ParsedPage | None = None
    links: tuple[FeedLink, ...] = ()


class DetectionResult(msgspec.Struct, frozen=True, array_like=True):
    """The changes found in the documents of a feed or page, and the next baseline.

    - ``baseline`` is the encoded state after this comparison. The next comparison needs it to detect changes.
    - ``latest`` are the latest entries, newest first; set only at the first poll.
    - ``older_url`` is the URL of the document with the next older entries; set only if polls have missed entries.
    - ``links`` are the feeds to which the document links, if it turned out to be an HTML page instead of a feed.
      ``guesses`` are URLs at which its feed may be found, if it links to none. No other field is set in these cases.
    - ``article`` is the text of an article, if this was requested. No other field is set in this case.
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
    guesses: tuple[str, ...] = ()
    article: str = ""


class ParseDocument(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to parse a document of unknown type. ``selector`` limits a page to what matches it."""

    document: Document
    selector: str = ""


class DetectChanges(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to find the changes in new documents of the channel ``url``, which is a feed or page.

    - ``documents`` are the new documents, from the oldest to the newest.
    - ``baseline`` is the encoded state after the previous comparison; ``b""`` if there was none.
    - ``kind`` is "article" to extract the article in a page instead, in a process that has loaded trafilatura.
    - ``now_s`` is the current Unix time.
    - ``cpu_s`` is a limit on the processor time of this comparison, in seconds. It applies in addition to the general
      limit for requests. The parser process is killed if the comparison takes longer.
    """

    documents: tuple[Document, ...]
    baseline: bytes
    url: str
    kind: Literal["feed", "page", "article"]
    now_s: float
    cpu_s: float = inf


class ParseOpml(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to parse an OPML file."""

    body: bytes


ParserRequest = ParseDocument | DetectChanges | ParseOpml


Result = TypeVar("Result", ParsedDocument, DetectionResult, OpmlDocument)


class ParserResponse(msgspec.Struct, Generic[Result], frozen=True, array_like=True):
    """The result of a request, or the fault (an encoded error) that ended it.

    - ``confinement`` is the kernel feature that confines the parser process; None if the process has died because of
      the document.
    - ``cpu_s`` is the processor time that the request took, in seconds.
    """

    result: Result | None
    fault: Fault | None
    confinement: Confinement | None
    cpu_s: float


def encode_frame(message: Any) -> bytes:
    """Return the message encoded as msgpack and preceded by its length."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
