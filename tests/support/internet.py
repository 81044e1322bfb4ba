"""A simulated Internet: a name server, and HTTP servers at every address on common ports.

It runs as a program in a network namespace, in which every address is local, until its standard input is closed.
Arguments are the zone as JSON and the path of a journal of connections and requests. The answers for a name alternate
with each query, as in DNS rebinding. ``/to?URL`` redirects to URL, ``/other`` is a different feed on each port, and all
other paths are a feed. With a certificate, port 443 uses TLS.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import msgspec

from tests.support.netns import Namespace, started

PORTS = (22, 25, 80, 443, 6379, 8080, 8443)

Zone = Mapping[str, Sequence[Sequence[str]]]
"""Name → successive answers to queries of the name, each a list of addresses."""

_A, _AAAA = 1, 28
_NOT_FOUND = 3
_TLS_PORT = 443
_FEED = """<rss version="2.0"><channel><title>{title}</title><link>http://{title}/</link>
<item><guid>{guid}</guid><title>First</title><link>http://{title}/1</link></item></channel></rss>"""


class ObservedRequest(msgspec.Struct, frozen=True):
    """An accepted connection, or an HTTP request if ``path`` is not "", with its time (Unix s) and local address."""

    at_s: float
    address: str
    port: int
    host: str = ""
    path: str = ""


class Internet:
    """The recorded traffic of a running simulated Internet."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def seen(self) -> list[ObservedRequest]:
        """Return all connections and requests so far, in order."""
        *lines, _ = self._journal.read_bytes().split(b"\n")  # the last line may be incomplete
        return [msgspec.json.decode(line, type=ObservedRequest) for line in lines]

    def addresses(self) -> set[str]:
        """Return the addresses with connections."""
        return {each.address for each in self.seen()}


@contextlib.contextmanager
def internet(place: Namespace, zone: Zone, scratch: Path, certificate: Path | None = None) -> Iterator[Internet]:
    """Run a simulated Internet with the names of ``zone`` in a namespace; ``scratch`` is the folder of the journal."""
    journal = scratch / "journal"
    tls = (certificate,) if certificate else ()
    program = (sys.executable, "-m", "tests.support.internet", json.dumps(zone), journal, *tls)
    with started(place.command(*program)):
        yield Internet(journal)


class NameServer(asyncio.DatagramProtocol):
    """Answers A and AAAA queries (RFC 1035 §4) with a TTL of 0."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._asked: Counter[tuple[str, int]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, place = [], 12
        while length := data[place]:
            labels.append(data[place + 1 : place + 1 + length].decode().lower())
            place += 1 + length
        (kind,) = struct.unpack_from("!H", data, place + 1)
        name = ".".join(labels)
        records = [] if name not in self._zone else self._next(name, kind)
        flags = 0x8580 | (0 if name in self._zone else _NOT_FOUND)
        head = struct.pack("!2sHHHHH", data[:2], flags, 1, len(records), 0, 0)
        answer = (struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(record)) + record for record in records)
        self._transport.sendto(b"".join([head, data[12 : place + 5], *answer]), addr)

    def _next(self, name: str, kind: int) -> list[bytes]:
        answers = self._zone[name]
        addresses = answers[self._asked[name, kind] % len(answers)]
        self._asked[name, kind] += 1
        family = {_A: socket.AF_INET, _AAAA: socket.AF_INET6}.get(kind)
        wanted = [address for address in addresses if (":" in address) == (family == socket.AF_INET6)]
        return [socket.inet_pton(family, address) for address in wanted] if family else []


class _HttpServer:
    """The HTTP server that listens at all addresses."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal.open("ab", buffering=0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port, *_ = writer.get_extra_info("sockname")
        connection = ObservedRequest(time.time(), address.removeprefix("::ffff:"), port)
        self._record(connection)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = dict(line.lower().partition(": ")[::2] for line in lines)
                path, host = request.split(" ")[1], fields.get("host", "")
                self._record(msgspec.structs.replace(connection, at_s=time.time(), host=host, path=path))
                writer.write(_answer(path, host, port))
        writer.close()

    def _record(self, seen: ObservedRequest) -> None:
        self._journal.write(msgspec.json.encode(seen) + b"\n")


def _answer(path: str, host: str, port: int) -> bytes:
    if path.startswith("/to?"):
        return f"HTTP/1.1 302 Found\r\nLocation: {unquote(path[4:])}\r\nContent-Length: 0\r\n\r\n".encode()
    body = _FEED.format(title=host, guid=port if path == "/other" else 1).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _run(zone: Zone, journal: Path, certificate: str = "") -> None:
    loop = asyncio.get_running_loop()
    http_server = _HttpServer(journal)
    await loop.create_datagram_endpoint(lambda: NameServer(zone), ("127.0.0.1", 53))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate else None
    if tls:
        tls.load_cert_chain(certificate)
    for port in PORTS:
        context = tls if port == _TLS_PORT else None
        await asyncio.start_server(http_server.serve, ["0.0.0.0", "::"], port, backlog=1000, ssl=context)  # noqa: S104 - at every address
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
