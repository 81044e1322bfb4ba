"""The publisher of a deployment: a program that serves all channels with little CPU time.

Run it with ``python -m service.embedded.deployment_experiment.publisher``. It reads a :class:`PublicationPlan` (JSON on
one line) from standard input, and prints its port. For each further line of input, it prints how many requests it has
served so far.

A feed document contains the channel's latest entries. Its ETag is the number of entries published so far.
"""

import asyncio
import re
import sys
import time
from bisect import bisect_right
from typing import cast

import msgspec
import uvloop

from service.embedded.deployment_experiment.publication_plan import (
    HOSTS,
    PublicationPlan,
    PublicationTimes,
    draw_publication_times,
    entry_title,
)

_FEED_LENGTH = 5
_MAX_HEAD_BYTES = 8 * 1024
_REQUEST_LINE = re.compile(rb"GET /feeds/(\d{1,9}) ")
_IF_NONE_MATCH = re.compile(rb"\r\nIf-None-Match: \"(\d+)\"", re.IGNORECASE)


class PublisherConnection(asyncio.Protocol):
    """One HTTP connection to the publisher.

    ``served``, a class attribute, counts the requests on all connections.
    """

    served = 0

    def __init__(self, updates: PublicationTimes) -> None:
        self._updates = updates
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; called by asyncio."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every complete request; called by asyncio."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head, self._received = self._received[:end], self._received[end + 4 :]
            PublisherConnection.served += 1
            self._transport.write(respond(self._updates, head, time.time()))
        if len(self._received) > _MAX_HEAD_BYTES:
            self._transport.close()


def respond(updates: PublicationTimes, head: bytes, now_s: float) -> bytes:
    """Return the HTTP response to a request, as of ``now_s`` (Unix time in seconds).

    ``head`` is the request line and the headers of the request.
    """
    request, known_etag = _REQUEST_LINE.match(head), _IF_NONE_MATCH.search(head)
    if request is None or int(request[1]) >= len(updates.published_s):
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    channel = int(request[1])
    count = _count(updates, channel, now_s)
    etag = f"ETag: {entity_tag(count)}\r\n"
    if known_etag is not None and int(known_etag[1]) == count:
        return f"HTTP/1.1 304 Not Modified\r\n{etag}\r\n".encode()
    body = _feed(channel, count)
    return f"HTTP/1.1 200 OK\r\n{etag}Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def current_document(updates: PublicationTimes, channel: int, now_s: float) -> tuple[int, bytes]:
    """Return (number of entries published so far, feed document) of a channel at the Unix time ``now_s``.

    ``channel`` is the index of the channel in ``updates``.
    """
    count = _count(updates, channel, now_s)
    return count, _feed(channel, count)


def entity_tag(count: int) -> str:
    """Return the ETag of a feed document after ``count`` entries have been published."""
    return f'"{count}"'


def _count(updates: PublicationTimes, channel: int, now_s: float) -> int:
    return bisect_right(updates.published_s[channel], now_s)


def _feed(channel: int, count: int) -> bytes:
    items = "".join(
        f'<item><guid isPermaLink="false">{entry_title(number)}</guid><title>{entry_title(number)}</title></item>'
        for number in range(count - 1, max(-1, count - 1 - _FEED_LENGTH), -1)
    )
    first = '<item><guid isPermaLink="false">first</guid><title>The first</title></item>'
    return f"<rss version='2.0'><channel><title>Channel {channel}</title>{items}{first}</channel></rss>".encode()


async def main() -> None:
    """Serve the feeds of all channels over HTTP until standard input is closed.

    The first line of input is the :class:`PublicationPlan` (JSON). The program then prints its port. For each further
    line of input, it prints the number of requests served so far.
    """
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=PublicationPlan)
    updates = draw_publication_times(plan)
    loop = asyncio.get_running_loop()
    port = 0
    for host in HOSTS:
        server = await loop.create_server(lambda: PublisherConnection(updates), host, port, backlog=1000)
        port = server.sockets[0].getsockname()[1]
    _print_line(port)
    while await loop.run_in_executor(None, sys.stdin.buffer.readline):
        _print_line(PublisherConnection.served)


def _print_line(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
