"""A TCP proxy on loopback that can turn into a bad link."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TcpProxy:
    """Forwards to one address. ``stall()`` makes every present connection half-open: open, but nothing passes."""

    def __init__(self, host: str, port: int) -> None:
        """Forward to this address; nothing is open before :func:`proxy`."""
        self.port = 0
        self.accepted = 0
        self._target = (host, port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._connections: set[asyncio.Task[None]] = set()

    def stall(self) -> None:
        """Stop forwarding on the connections there are; those made from now on are sound."""
        self._passing.clear()
        self._passing = asyncio.Event()
        self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection both ways until one side closes it."""
        self.accepted += 1
        passing = self._passing
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(_forward(reader, far_writer, passing)),
            asyncio.create_task(_forward(far_reader, writer, passing)),
        ]
        self._connections.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if passing.is_set():
            for end in (writer, far_writer):
                end.close()

    async def close(self) -> None:
        """End every connection."""
        for way in self._connections:
            way.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    try:
        with contextlib.suppress(OSError):
            while passing.is_set() and (data := await reader.read(65_536)) and passing.is_set():
                writer.write(data)
                await writer.drain()
    finally:
        if passing.is_set():
            writer.close()


@contextlib.asynccontextmanager
async def proxy(host: str, port: int) -> AsyncIterator[TcpProxy]:
    """Yield a proxy that listens at its ``port``."""
    link = TcpProxy(host, port)
    server = await asyncio.start_server(link.serve, "127.0.0.1")
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.close()
        await server.wait_closed()
