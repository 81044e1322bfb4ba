"""The publisher of ``tests.live.load``: feeds that get new entries when they are polled, at a total rate.

A program with the arguments and the control socket of ``tests.support.public_publisher``. ``/load`` sets the rate of
new entries, and the hosts that misbehave. Between two requests the entries that are due accumulate; each poll of a
feed gets some of them. Therefore the delay of an entry does not contain the wait for the next poll, which the policy
decides. Entries have the title ``News [FEED/NUMBER]``; each is a line of ``published.jsonl``.
"""

import asyncio
import contextlib
import hashlib
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from tests.support.delivery_audit import tagged
from tests.support.hostile_publisher import BAD_ANSWERS, DRIPS
from tests.support.public_publisher import HOURLY, FeedServer, run
from tests.support.raw_http import Handler, answering, ok

MOST_AT_ONCE: Final = 4
"""Entries that a poll of a feed gets at most."""
_MOST_DUE_S: Final = 5.0
_MISBEHAVES_FOR_S: Final = 30.0
_NUMBER = re.compile(r"(\d+)[^\d]*$")
_KINDS: Final = (
    *("gzip bomb", "endless", "endless headers", "headers of 20 MB", "false gzip", "Content-Length too long"),
    *("broken chunk", "silence", "a redirect to itself", "endless small chunks"),
)


class Load(msgspec.Struct, frozen=True):
    """New entries per second of all feeds, and the hosts that misbehave."""

    updates_per_s: float
    hostile: tuple[str, ...] = ()


class Published(msgspec.Struct, frozen=True, array_like=True):
    """An entry: the numbers of its feed and in it, and when it was published (Unix s)."""

    feed: int
    number: int
    at_s: float


def number_of(url: str) -> int:
    """Return the number of a feed, the last one in its URL."""
    found = _NUMBER.search(url)
    assert found, url
    return int(found[1])


def drip(start: bytes) -> Handler:
    """Return a handler that sends one byte every 0.2 s."""
    return answering(start, *[b"x"] * int(_MISBEHAVES_FOR_S / 0.2), pause_s=0.2)


def costly(tags: int = 20_000) -> Handler:
    """Return a handler that sends a feed which takes long to parse."""
    items = b"<item><guid>the-first</guid><title>the-first</title></item>" + b"<b>" * tags
    return answering(ok(b'<rss version="2.0"><channel><title>T</title>' + items + b"</channel></rss>"))


class _Writer(asyncio.StreamWriter):
    async def wait_closed(self) -> None:
        """Return at once: aiohttp's protocol does not say when it is closed."""


class LoadServer(FeedServer):
    """Feeds that publish when they are polled."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._published = (scratch / "published.jsonl").open("ab", buffering=0)
        self._load = Load(0.0)
        self._numbers: dict[str, int] = {}
        self._due, self._at_s = 0.0, time.monotonic()
        handlers = [BAD_ANSWERS[kind]() for kind in _KINDS]
        self._handlers: Sequence[Handler] = (*handlers, *map(drip, DRIPS.values()), costly())

    async def set_load(self, request: web.Request) -> web.Response:
        """Change the load."""
        self._load = msgspec.json.decode(await request.read(), type=Load)
        self._due, self._at_s = 0.0, time.monotonic()
        return web.Response(text=repr(time.time()))

    async def serve(self, request: web.Request) -> web.Response:
        """Respond to a worker."""
        if request.host in self._load.hostile:
            return await self._misbehave(request)
        return await super().serve(request)

    def feed(self, request: web.Request) -> web.Response:
        """Publish entries that are due, and return the feed."""
        now_s = time.monotonic()
        rate = self._load.updates_per_s
        self._due = min(self._due + (now_s - self._at_s) * rate, _MOST_DUE_S * rate)
        self._at_s = now_s
        if request.path != HOURLY:
            for _ in range(min(int(self._due), MOST_AT_ONCE)):
                self._due -= 1
                self._publish(request.host, request.path)
        return super().feed(request)

    def _publish(self, host: str, path: str) -> None:
        url = host + path
        self._numbers[url] = number = self._numbers.get(url, 0) + 1
        self.titles[host, path].append(tagged(number_of(url), number))
        self._published.write(msgspec.json.encode(Published(number_of(url), number, time.time())) + b"\n")

    async def _misbehave(self, request: web.Request) -> web.Response:
        """Respond with invalid or malicious bytes: each feed in its own way."""
        self.record(request, 0)
        transport = request.transport
        assert transport is not None
        digest = hashlib.sha256(request.url.raw_path_qs.encode()).digest()
        writer = _Writer(transport, request.protocol, None, asyncio.get_running_loop())
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_MISBEHAVES_FOR_S):
                await self._handlers[digest[0] % len(self._handlers)]("", writer)
        transport.abort()
        return web.Response(status=web.HTTPServiceUnavailable.status_code)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    server = LoadServer(directory)
    asyncio.run(run(directory, server, web.post("/load", server.set_load)))
