"""A publisher of many feeds at public addresses, as a program in a network namespace, and its client outside.

The program is a name server and an HTTP server on port 80 of every address. Every path of every host is a feed with
validators. Each request is a line of the journal. The client changes what hosts answer, and publishes entries, through
a Unix socket. The program ends with its standard input. Arguments: the zone (JSON), and the directory for its files.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from tests.support.internet import NameServer
from tests.support.netns import Namespace, started

HOURLY = "/hourly"
"""The path of feeds that ask to be polled once an hour (``ttl`` and the syndication module)."""

_LISTED = 30
_WORKER = re.compile(r"\+http://([a-z0-9-]+)\.worker\.example")
_HOURLY_ELEMENTS = "<ttl>60</ttl><sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>1</sy:updateFrequency>"


def worker_url(name: str) -> str:
    """Return the public URL in the settings of a worker, by which the journal names it."""
    return f"http://{name}.worker.example"


def document(host: str, path: str, titles: list[str]) -> bytes:
    """Return the feed with these entries, oldest first in ``titles``, after an entry that every feed has."""
    names = reversed(["The first", *titles][-_LISTED:])
    items = "".join(
        f'<item><guid isPermaLink="false">{name}</guid><title>{name}</title><link>http://{host}{path}</link></item>'
        for name in names
    )
    wishes = _HOURLY_ELEMENTS if path == HOURLY else ""
    return (
        '<?xml version="1.0"?><rss version="2.0" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/">'
        f"<channel><title>{host}</title>{wishes}{items}</channel></rss>"
    ).encode()


def entity_tag(body: bytes) -> str:
    """Return the ETag of a document."""
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


class Request(NamedTuple):
    """One request: its time (Unix s), the feed's host and path, the worker that sent it, and the answer's status.

    A status of 0 means that the connection was closed without an answer.
    """

    at_s: float
    host: str
    path: str
    worker: str
    status: int

    @property
    def url(self) -> str:
        """The feed's URL."""
        return f"http://{self.host}{self.path}"


class Answer(msgspec.Struct, frozen=True):
    """The HTTP status with which all feeds of a host respond; 200 sends the feed, 0 closes the connection."""

    host: str
    status: int
    retry_after_s: int = 0


class PublicPublisher:
    """The client of the running publisher program."""

    def __init__(self, journal: Path, http: aiohttp.ClientSession) -> None:
        self._journal = journal
        self._http = http

    def requests(self) -> list[Request]:
        """Return all requests so far, in order."""
        *lines, _ = self._journal.read_bytes().split(b"\n")  # the last line may be incomplete
        return [msgspec.json.decode(line, type=Request) for line in lines]

    async def publish(self, url: str, title: str) -> float:
        """Add an entry to the feed at ``url``; return the time of publication (Unix s)."""
        return await self.control("/publish", {"url": url, "title": title})

    async def answer(self, host: str, status: int, retry_after_s: int = 0) -> float:
        """Set the HTTP status of the responses of all feeds of a host; return the time (Unix s)."""
        return await self.control("/answer", Answer(host, status, retry_after_s))

    async def control(self, path: str, body: object) -> float:
        """Send a command to the control socket; return the time of its execution (Unix s)."""
        async with self._http.post(f"http://control{path}", data=msgspec.json.encode(body)) as answer:
            answer.raise_for_status()
            return float(await answer.text())


@contextlib.asynccontextmanager
async def public_publisher(
    place: Namespace, hosts: dict[str, str], scratch: Path, program: str = __name__
) -> AsyncIterator[PublicPublisher]:
    """Run the program, or another one with the same control socket, in a namespace.

    ``hosts`` has the address of each host.
    """
    zone = json.dumps({host: [[address]] for host, address in hosts.items()})
    (scratch / "zone.json").write_text(zone, encoding="utf-8")
    with started(place.command(sys.executable, "-m", program, scratch)):
        connector = aiohttp.UnixConnector(path=str(scratch / "control.sock"))
        async with aiohttp.ClientSession(connector=connector) as http:
            yield PublicPublisher(scratch / "requests.jsonl", http)


class FeedServer:
    """The feeds of the publisher program, its responses, and its journal of requests."""

    def __init__(self, scratch: Path) -> None:
        self.titles: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """The titles of the entries of each feed, by its host and path, oldest first."""
        self._journal = (scratch / "requests.jsonl").open("ab", buffering=0)
        self._answers: dict[str, Answer] = {}

    async def serve(self, request: web.Request) -> web.Response:
        """Respond to a request for a feed, and record it in the journal."""
        answer = self._answers.get(request.host, Answer(request.host, 200))
        response = (
            self.feed(request)
            if answer.status == web.HTTPOk.status_code
            else web.Response(status=answer.status or web.HTTPServiceUnavailable.status_code)
        )
        if answer.retry_after_s:
            response.headers["Retry-After"] = str(answer.retry_after_s)
        self.record(request, response.status if answer.status else 0)
        if not answer.status and request.transport is not None:
            request.transport.abort()
        return response

    def record(self, request: web.Request, status: int) -> None:
        """Write a request and the status of its response to the journal."""
        worker = _WORKER.search(request.headers.get("User-Agent", ""))
        seen = Request(time.time(), request.host, request.path, worker[1] if worker else "", status)
        self._journal.write(msgspec.json.encode(seen) + b"\n")

    def feed(self, request: web.Request) -> web.Response:
        """Return the response with the feed, or 304 if it has not changed."""
        body = document(request.host, request.path, self.titles[request.host, request.path])
        headers = {"ETag": entity_tag(body)}
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type="application/rss+xml", headers=headers)

    async def publish(self, request: web.Request) -> web.Response:
        """Execute the control command that adds an entry; respond with the time (Unix s)."""
        asked = msgspec.json.decode(await request.read())
        host, slash, path = asked["url"].removeprefix("http://").partition("/")
        self.titles[host, slash + path].append(asked["title"])
        return web.Response(text=repr(time.time()))

    async def answer(self, request: web.Request) -> web.Response:
        """Execute the control command that sets the responses of a host; respond with the time (Unix s)."""
        asked = msgspec.json.decode(await request.read(), type=Answer)
        self._answers[asked.host] = asked
        return web.Response(text=repr(time.time()))


async def run(scratch: Path, program: FeedServer, *control_routes: web.RouteDef) -> None:
    """Serve feeds until the standard input ends; ``control_routes`` are further paths of the control socket."""
    loop = asyncio.get_running_loop()
    zone = json.loads((scratch / "zone.json").read_text(encoding="utf-8"))
    await loop.create_datagram_endpoint(lambda: NameServer(zone), ("127.0.0.1", 53))
    feeds, control = web.Application(), web.Application()
    feeds.router.add_get("/{path:.*}", program.serve)
    control.router.add_post("/publish", program.publish)
    control.router.add_post("/answer", program.answer)
    control.add_routes(control_routes)
    for app in (feeds, control):
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        if app is feeds:
            await web.TCPSite(runner, "0.0.0.0", 80, backlog=1000).start()  # noqa: S104 - at every address
        else:
            await web.UnixSite(runner, str(scratch / "control.sock")).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    asyncio.run(run(directory, FeedServer(directory)))
