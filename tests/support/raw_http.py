"""Publishers that send exactly the given bytes, even invalid ones."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Handler = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
"""Takes a request's head and writes the response."""


@dataclass
class RawPublisher:
    """A server on 127.0.0.1 with the received request heads and the number of connections."""

    handler: Handler
    port: int = 0
    connections: int = 0
    requests: list[str] = field(default_factory=list)

    def url(self, path: str = "/feed", host: str = "127.0.0.1", scheme: str = "http") -> str:
        """Return the URL of a path on this server."""
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client disconnects."""
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.requests.append(head)
                await self.handler(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client left: tests are about the client
        finally:
            writer.transport.abort()


@asynccontextmanager
async def raw_publisher(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawPublisher]:
    """Run a publisher until the block ends."""
    publisher = RawPublisher(handler)
    serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
    is_over = False

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_over:  # the kernel had taken the connection before we stopped listening
            writer.transport.abort()
        else:
            serving[writer] = asyncio.ensure_future(publisher.serve(reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    publisher.port = server.sockets[0].getsockname()[1]
    try:
        yield publisher
    finally:
        is_over = True
        server.close()
        for task in serving.values():
            task.cancel()
        await asyncio.gather(*serving.values(), return_exceptions=True)
        for writer in serving:  # a task cancelled before its first step closes nothing
            writer.transport.abort()
        await server.wait_closed()


def answering(*chunks: bytes, pause_s: float = 0.0, then_close: bool = True) -> Handler:
    """Return a handler that sends these chunks in sequence."""

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if then_close:
            writer.close()
            await writer.wait_closed()

    return answer


def ok(body: bytes, *headers: str) -> bytes:
    """Return a complete 200 response."""
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]).encode("latin-1") + body


def redirect(location: str, status: int = 302) -> bytes:
    """Return a redirect response."""
    return f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
