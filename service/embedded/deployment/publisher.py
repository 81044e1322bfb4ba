"""The publisher of a deployment: a program that serves every channel, and costs next to nothing.

``python -m service.embedded.deployment.publisher`` reads a :class:`Plan` (JSON, one line), prints its port, and on each
further line how many requests it has answered. A feed shows its last entries; its ETag is how many it ever had.
"""

import asyncio
import re
import sys
import time
from bisect import bisect_right
from typing import cast

import msgspec
import uvloop

from service.embedded.deployment.updates import HOSTS, Plan, Updates, entry_title, updates_of

_SHOWN = 5
_MOST_HEAD_BYTES = 8 * 1024
_ASKED = re.compile(rb"GET /feeds/(\d{1,9}) ")
_KNOWN = re.compile(rb"\r\nIf-None-Match: \"(\d+)\"", re.IGNORECASE)


class Origin(asyncio.Protocol):
    """One connection; all count together."""

    answered = 0

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection (asyncio calls this)."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete (asyncio calls this)."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head, self._received = self._received[:end], self._received[end + 4 :]
            Origin.answered += 1
            self._transport.write(answer(self._updates, head, time.time()))
        if len(self._received) > _MOST_HEAD_BYTES:
            self._transport.close()


def answer(updates: Updates, head: bytes, now_s: float) -> bytes:
    """Return the answer to a request's head at that time."""
    asked, known = _ASKED.match(head), _KNOWN.search(head)
    if asked is None or int(asked[1]) >= len(updates.published_s):
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    channel = int(asked[1])
    count = _count(updates, channel, now_s)
    etag = f"ETag: {etag_of(count)}\r\n"
    if known is not None and int(known[1]) == count:
        return f"HTTP/1.1 304 Not Modified\r\n{etag}\r\n".encode()
    body = _feed(channel, count)
    return f"HTTP/1.1 200 OK\r\n{etag}Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def shown(updates: Updates, channel: int, now_s: float) -> tuple[int, bytes]:
    """Return how many entries a channel has had by then, and its document."""
    count = _count(updates, channel, now_s)
    return count, _feed(channel, count)


def etag_of(count: int) -> str:
    """Return the validator of a document after so many entries."""
    return f'"{count}"'


def _count(updates: Updates, channel: int, now_s: float) -> int:
    return bisect_right(updates.published_s[channel], now_s)


def _feed(channel: int, count: int) -> bytes:
    items = "".join(
        f'<item><guid isPermaLink="false">{entry_title(number)}</guid><title>{entry_title(number)}</title></item>'
        for number in range(count - 1, max(-1, count - 1 - _SHOWN), -1)
    )
    first = '<item><guid isPermaLink="false">first</guid><title>The first</title></item>'
    return f"<rss version='2.0'><channel><title>Channel {channel}</title>{items}{first}</channel></rss>".encode()


async def main() -> None:
    """Serve until standard input ends."""
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)
    updates = updates_of(plan)
    loop = asyncio.get_running_loop()
    port = 0
    for host in HOSTS:
        server = await loop.create_server(lambda: Origin(updates), host, port, backlog=1000)
        port = server.sockets[0].getsockname()[1]
    _say(port)
    while await loop.run_in_executor(None, sys.stdin.buffer.readline):
        _say(Origin.answered)


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
