"""A publisher program that uses little CPU time: every request gets the same response.

``python -m tests.bench.plain_publisher`` prints its port, and for each input line the number of requests served. A
request with ``If-None-Match`` gets 304, unless the path begins with ``/full``, which always returns the same 33 KB.
"""

import asyncio
import sys

BODY_BYTES = 33 * 1024
ITEM = "<item><guid>{0}</guid><title>Entry {0}</title><link>http://127.0.0.1/{0}</link><description>{1}</description></item>"
_ITEMS = 30


def body() -> bytes:
    """Return a feed of 33 KB."""
    items = "".join(ITEM.format(n, f"{n} " * 400) for n in range(_ITEMS))
    return (
        f"<rss version='2.0'><channel><title>Plain</title>{items}</channel></rss>".encode()[:-16] + b"</channel></rss>"
    )


_SAME = b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n'


class Answering(asyncio.Protocol):
    """One connection."""

    answered = 0
    whole = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head, self._received = self._received[:end], self._received[end + 4 :]
            Answering.answered += 1
            conditional = b"if-none-match" in head.lower() and not head.startswith(b"GET /full")
            assert isinstance(self._transport, asyncio.Transport)
            self._transport.write(_SAME if conditional else self.whole)


async def main() -> None:
    """Serve until stdin ends."""
    content = body()
    head = f'HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nETag: "1"\r\nContent-Length: {len(content)}\r\n\r\n'
    Answering.whole = head.encode() + content
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - how its parent learns the port
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(Answering.answered, flush=True)  # noqa: T201 - how its parent learns the count


if __name__ == "__main__":
    asyncio.run(main())
