"""A sample publisher on loopback: feeds with new entries, and typical broken feeds.

- ``/feed.xml`` (feed 0) and ``/feeds/N.xml`` are feeds with correct HTTP validators.
- ``/`` is a page that links to feed 0.
- URLs under ``/bad/`` fail, each in a different way.
- ``POST /publish?feed=N&title=…`` adds an entry.

The journal ``published.jsonl`` contains all entries. After a restart, the publisher continues with these entries. Tests
compare the journal with the notifications that were sent. The journal ``requests.jsonl`` contains all requests.
"""

import asyncio
import contextlib
import hashlib
import html
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Generic, Self, TypeVar

import msgspec
from aiohttp import web

from service.asyncio_tasks import run_until_stopped
from service.embedded.ports import LOOPBACK
from service.errors import OperationalError, UserError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

FEED_LENGTH = 100
"""Maximum number of entries in a feed document; older entries are omitted."""
HUGE_BYTES = 10_000_000
_DRIP_INTERVAL_S = 0.2
_HOME = (
    b"<!doctype html><html><head><title>Coronet's sample publisher</title>"
    b'<link rel="alternate" type="application/rss+xml" title="Sample feed" href="/feed.xml"></head>'
    b"<body><h1>Coronet's sample publisher</h1><p>Its <a href='/feed.xml'>feed</a> grows all the time.</body></html>"
)
_HTML, _RSS = "text/html", "application/rss+xml"
_FIXED = {
    "/": (_HOME, _HTML),
    r"/entries/{feed:\d{1,9}}/{number:\d{1,9}}": (b"<!doctype html><title>An entry</title>", _HTML),
    "/bad/html": (b"<!doctype html><title>No feed</title><p>And none is named.", _HTML),
    "/bad/broken.xml": (b'<?xml version="1.0"?><rss version="2.0"><channel', _RSS),
    "/bad/empty": (b"", _RSS),
    "/bad/huge": (b"<rss><channel><title>" + b"x" * HUGE_BYTES, _RSS),
}


class PublishedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed; ``published_s`` is the Unix time of its publication in seconds."""

    feed: int
    id: str
    link: str
    title: str
    published_s: float


class LoggedRequest(msgspec.Struct, frozen=True):
    """One request, and the status of the response to it.

    - ``at_s``: the Unix time in seconds.
    - ``conditional``: whether the request contained ``If-None-Match`` or ``If-Modified-Since``.
    """

    at_s: float
    path: str
    status: int
    user_agent: str
    conditional: bool


Line = TypeVar("Line", bound=msgspec.Struct)


class Journal(Generic[Line]):
    """An append-only file with one JSON value per line.

    The last line may be incomplete if the process was killed while writing. Such a line is removed when the file is
    opened.
    """

    def __init__(self, path: Path, kind: type[Line]) -> None:
        path.touch(mode=0o600)
        self._kind = kind
        self._path = path
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        self._path.write_bytes(whole + b"\n" if whole else b"")

    def append(self, line: Line) -> None:
        """Append one line. Once this method has returned, the line is kept even if this process is killed."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def lines(self) -> list[Line]:
        """Return all lines, oldest first."""
        return [msgspec.json.decode(line, type=self._kind) for line in self._path.read_bytes().splitlines()]


class SamplePublisher:
    """A publisher that keeps its entries in a directory."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        """Load the entries published earlier from ``directory``. A ``port`` of 0 means any free port."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._port = port
        self._published = Journal(directory / "published.jsonl", PublishedEntry)
        self._requests = Journal(directory / "requests.jsonl", LoggedRequest)
        self._feeds: defaultdict[int, list[PublishedEntry]] = defaultdict(list)
        for entry in self._published.lines():
            self._feeds[entry.feed].append(entry)

    @property
    def url(self) -> str:
        """The base URL of the publisher, without a trailing slash."""
        return f"http://{LOOPBACK}:{self._port}"

    def feed_url(self, feed: int = 0) -> str:
        """Return the URL of the feed with the number ``feed``."""
        return f"{self.url}/feeds/{feed}.xml" if feed else f"{self.url}/feed.xml"

    def published(self, feed: int = 0) -> list[PublishedEntry]:
        """Return all entries of a feed, oldest first."""
        return list(self._feeds[feed])

    def requests(self) -> list[LoggedRequest]:
        """Return all requests so far, oldest first."""
        return self._requests.lines()

    async def publish(self, title: str, feed: int = 0) -> PublishedEntry:
        """Add an entry to a feed and return the entry. The next response for the feed contains it."""
        number = len(self._feeds[feed]) + 1
        entry = PublishedEntry(
            feed=feed,
            id=f"urn:sample:{feed}:{number}",
            link=f"{self.url}/entries/{feed}/{number}",
            title=title,
            published_s=time.time(),
        )
        self._published.append(entry)
        self._feeds[feed].append(entry)
        return entry

    async def __aenter__(self) -> Self:
        """Start the server. Raises :class:`OperationalError` if the port is in use."""
        app = web.Application()
        app.add_routes(web.get(path, _fixed(*response)) for path, response in _FIXED.items())
        app.add_routes(
            [
                web.get("/feed.xml", self._serve_feed),
                web.get(r"/feeds/{feed:\d{1,9}}.xml", self._serve_feed),
                web.post("/publish", self._handle_publish),
                web.get("/bad/slow", _respond_without_end),
            ]
        )
        app.on_response_prepare.append(self._log)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise OperationalError(
                f"The sample publisher cannot listen on port {self._port}: {str(error.strerror).rpartition(': ')[2]}. "
                "Choose another port with --port."
            ) from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve_feed(self, request: web.Request) -> web.Response:
        feed = int(request.match_info.get("feed", "0"))
        entries = self._feeds.get(feed, [])
        body = render_rss(f"Sample feed {feed}" if feed else "Coronet's sample feed", self.url, entries)
        response = web.Response(body=body, content_type="application/rss+xml", charset="utf-8")
        etag = hashlib.sha256(body).hexdigest()[:16]
        response.etag = etag
        if entries:
            response.last_modified = int(entries[-1].published_s)
        if _is_unchanged(request, etag, entries):
            response.set_status(304)
            response.body = None
        return response

    async def _handle_publish(self, request: web.Request) -> web.Response:
        feed = request.query.get("feed", "0")
        if not feed.isdecimal():
            raise web.HTTPBadRequest(text="feed is a number: POST /publish?feed=0&title=…\n")
        entry = await self.publish(request.query.get("title", "Untitled"), int(feed))
        return web.json_response({"id": entry.id, "link": entry.link, "title": entry.title, "at": entry.published_s})

    async def _log(self, request: web.Request, response: web.StreamResponse) -> None:
        conditional = bool(request.headers.keys() & {"If-None-Match", "If-Modified-Since"})
        agent = request.headers.get("User-Agent", "")
        self._requests.append(LoggedRequest(time.time(), request.path_qs, response.status, agent, conditional))


async def run(directory: Path, port: int, interval_s: float) -> None:
    """Serve the feeds until SIGTERM or Ctrl-C, and add an entry to feed 0 every ``interval_s`` seconds.

    After a restart, the next entry is due ``interval_s`` seconds after the latest one. Raises :class:`UserError` if the
    directory cannot be used.
    """
    try:
        publisher = SamplePublisher(directory, port)
    except OSError as error:
        raise UserError(f"{directory} cannot be the publisher's directory: {error.strerror}.") from error
    await run_until_stopped(_publish_regularly(publisher, interval_s))


async def _publish_regularly(publisher: SamplePublisher, interval_s: float) -> None:
    async with publisher:
        while True:
            entries = publisher.published()
            wait_s = entries[-1].published_s + interval_s - time.time() if entries else 0.0
            await asyncio.sleep(min(wait_s, interval_s))
            await publisher.publish(f"Entry {len(entries) + 1}")


def _is_unchanged(request: web.Request, etag: str, entries: list[PublishedEntry]) -> bool:
    if request.if_none_match is not None:  # If-None-Match takes precedence: RFC 9110 §13.1.3
        return any(tag.value in ("*", etag) for tag in request.if_none_match)
    since = request.if_modified_since
    return since is not None and bool(entries) and is_unchanged_since(entries, int(since.timestamp()))


def _fixed(body: bytes, content_type: str) -> Handler:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type)

    return serve


async def _respond_without_end(request: web.Request) -> web.StreamResponse:
    """Send a response one byte at a time, without ever ending it, so that the client has to close the connection."""
    response = web.StreamResponse(headers={"Content-Type": "application/rss+xml"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(_DRIP_INTERVAL_S)
    return response


def render_rss(title: str, link: str, entries: Sequence[PublishedEntry]) -> bytes:
    """Return an RSS document with the latest of ``entries``, newest first; ``entries`` must be sorted oldest first."""
    items = "".join(_item(entry) for entry in reversed(entries[-FEED_LENGTH:]))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>'
        f"<title>{html.escape(title)}</title><link>{html.escape(link)}</link>"
        f"<description>Made up on this machine, to try Coronet with.</description>\n{items}</channel></rss>\n"
    ).encode()


def _item(entry: PublishedEntry) -> str:
    return (
        f'<item><guid isPermaLink="false">{entry.id}</guid><title>{html.escape(entry.title)}</title>'
        f"<link>{entry.link}</link><pubDate>{formatdate(entry.published_s, usegmt=True)}</pubDate></item>\n"
    )


def is_unchanged_since(entries: Sequence[PublishedEntry], since_s: int) -> bool:
    """Return whether a client's copy of the feed is certain to contain all entries.

    ``since_s`` is the modification time of the copy, which the client sends as ``If-Modified-Since`` (Unix time in
    whole seconds). If several entries were published within this second, the result is False, because the copy may lack
    some of these entries (RFC 9110 §8.8.2.2).
    """
    newer = [entry for entry in entries if int(entry.published_s) >= since_s]
    return len(newer) <= 1 and all(int(entry.published_s) == since_s for entry in newer)
