"""A TCP proxy on loopback that can stall connections or add latency."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TcpProxy:
    """Forwards connections from its ``port`` to one address."""

    def __init__(self, host: str, port: int, delay_s: float = 0.0) -> None:
        """Forward to an address with ``delay_s`` in each direction; :func:`proxy` opens the port."""
        self.port = 0
        self._delay_s = delay_s
        self._target = (host, port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._serving: set[asyncio.Task[None]] = set()

    def stall(self) -> None:
        """Make all present connections half-open: no data passes and none is closed. New connections work."""
        self._passing.clear()
        self._passing = asyncio.Event()
        self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection both ways until one side closes it; if it is stalled, until :meth:`close`."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        passing, writers = self._passing, [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            writers.append(far_writer)
            ways = (self._forward(reader, far_writer, passing), self._forward(far_reader, writer, passing))
            async with asyncio.TaskGroup() as group:
                for way in ways:
                    group.create_task(way)
        except* (OSError, EOFError):
            pass
        finally:
            self._serving.discard(task)
            for end in writers:
                end.transport.abort()

    async def close(self) -> None:
        """Close all connections."""
        for task in tuple(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event
    ) -> None:
        """Forward one way; raise EOFError at its end. Once stalled, read on and forward nothing."""
        while data := await reader.read(65_536):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if passing.is_set():
                writer.write(data)
                await writer.drain()
        if passing.is_set():
            raise EOFError


@contextlib.asynccontextmanager
async def proxy(host: str, port: int, delay_s: float = 0.0) -> AsyncIterator[TcpProxy]:
    """Yield a proxy that listens at its ``port``."""
    link = TcpProxy(host, port, delay_s)
    server = await asyncio.start_server(link.serve, "127.0.0.1")
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.close()
        await server.wait_closed()
