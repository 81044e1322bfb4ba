"""The HTTP server of every process: it serves an application and bounds what clients can hold of it.

aiohttp limits the size of requests, but not how long they take, nor how many connections there are. Here each
connection has a deadline for the headers of a request, for its body (which has to come at a least rate), for the time
that the client reads nothing of an answer, and for being idle. There are so many connections from one address, and in
all. When all are taken, a new client takes the place of the one that has kept us waiting longest, for a request or for
the rest of its body; if we are at work for every connection, the new one is closed. Streams and WebSockets are such
work, and last as long as their handlers.

The middleware of this server finds the client behind trusted proxies (:func:`client_of`), and answers 400 where the
body of a request breaks off or is malformed.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Literal, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from service.net.client_address import Client, ForwardingUnclear, Network, find_client, is_in_networks, network_of
from service.observability.metrics import HTTP_CONNECTIONS_ENDED

HEADERS_WITHIN_S = 20.0
"""From the first byte of a request, or from the connection, to the last of its headers."""
BODY_WITHIN_S = 20.0
LEAST_BYTES_PER_S = 16_384
"""A body may take ``BODY_WITHIN_S`` and as long as this rate takes for what has come."""
WRITE_WITHIN_S = 60.0
"""A client reads something of its answer at least so often."""
IDLE_S = 75.0
"""Longer than the 60 s for which nginx keeps connections: else it could send a request as we close."""
CONNECTIONS = 500
CONNECTIONS_PER_ADDRESS = 100
"""Of an IPv4 address or an IPv6 /64. Trusted proxies have no such limit: all clients come through them."""
MOST_PIPELINED_BYTES = 64 * 1024
"""Of further requests that are sent while one is under way."""

_LONGEST_LINE_BYTES = 64 * 1024
"""Of a request: of one that is not this long by far, we rather than the library say what is wrong with it."""
_MOST_HEADERS = 64
_LINGER_S = 5.0

_CLIENT: Final = web.RequestKey("client", Client)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Reason = Literal["headers", "body", "answer", "idle", "pipelining", "address", "full"]


def client_of(request: web.Request) -> Client:
    """Return who sent a request that came through an :class:`HttpServer`."""
    return request[_CLIENT]


def is_client_fault(request: web.Request, error: BaseException) -> bool:
    """Return whether an error means that the client sent a malformed body, or is gone."""
    if isinstance(error, ConnectionError):
        return request.transport is None or request.transport.is_closing()
    return isinstance(error, (web.RequestPayloadError, HttpProcessingError))


class HttpServer:
    """Serves one application. Client addresses that ``trusted_proxies`` name are believed."""

    def __init__(
        self, app: web.Application, *, trusted_proxies: Iterable[Network] = (), shutdown_s: float = 1.0
    ) -> None:
        """Complete the application; listen at nothing yet."""
        self._trusted = tuple(trusted_proxies)
        self._open: set[_Connection] = set()
        self._of_network: Counter[str] = Counter()
        self._sockets: asyncio.Server | None = None
        app.middlewares.insert(0, self._around)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_library_log,
            shutdown_timeout=shutdown_s,
            max_line_size=_LONGEST_LINE_BYTES,
            max_headers=_MOST_HEADERS,
            lingering_time=_LINGER_S,
        )

    async def start(self, bind: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises ``OSError`` when the address cannot be taken."""
        await self._runner.setup()
        try:
            self._sockets = await asyncio.get_running_loop().create_server(
                self._new_connection, bind, port, reuse_address=True
            )
        except OSError:
            await self._runner.cleanup()
            raise

    async def close(self) -> None:
        """Stop listening, let requests under way end for a moment, and close all connections."""
        if self._sockets is not None:
            self._sockets.close()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that was taken."""
        return cast("int", self._address()[1])

    @property
    def url(self) -> str:
        """``http://host:port`` as another machine can use it: a server at every address is named by its host name."""
        host = cast("str", self._address()[0])
        if ip_address(host).is_unspecified:
            host = socket.gethostname()
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def _address(self) -> tuple[object, ...]:
        assert self._sockets is not None, "the server has not started"  # noqa: S101 - a mistake of ours
        return cast("tuple[object, ...]", self._sockets.sockets[0].getsockname())

    def _new_connection(self) -> asyncio.Protocol:
        assert self._runner.server is not None  # noqa: S101 - set up before the first connection
        return _Connection(self, self._runner.server())

    def admit(self, connection: "_Connection") -> bool:
        """Count a new connection in, if there is room for it."""
        network = network_of(connection.address)
        if self._of_network[network] >= CONNECTIONS_PER_ADDRESS and not is_in_networks(
            connection.address, self._trusted
        ):
            return self._refuse("address")
        if len(self._open) >= CONNECTIONS:
            waiting = [each for each in self._open if each.is_waiting]
            if not waiting:
                return self._refuse("full")
            min(waiting, key=lambda each: each.waiting_since_s).end("full")
        self._open.add(connection)
        self._of_network[network] += 1
        return True

    def release(self, connection: "_Connection") -> None:
        """Count a connection out; harmless when it is out already."""
        if connection in self._open:
            network = network_of(connection.address)
            self._open.remove(connection)
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]

    @staticmethod
    def _refuse(reason: _Reason) -> bool:
        HTTP_CONNECTIONS_ENDED.labels(reason).inc()
        return False

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Watch over one request, and find its client."""
        connection = request.transport.get_protocol() if request.transport is not None else None
        watched = connection if isinstance(connection, _Connection) else None
        if watched is not None:
            watched.on_request(request)
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        request[_CLIENT] = Client(peer[0] if peer else "", is_secure=False)
        try:
            request[_CLIENT] = self._client(request)
            return await handler(request)
        except ForwardingUnclear as error:
            return web.Response(status=400, text=f"{error}\n")
        except Exception as error:
            if not is_client_fault(request, error):
                raise
            response = web.Response(status=400, text="The body of the request broke off, or is malformed.\n")
            response.force_close()
            return response
        finally:
            if watched is not None:
                watched.on_answer()

    def _client(self, request: web.Request) -> Client:
        return find_client(
            client_of(request).address,
            request.forwarded,
            request.headers.getall(hdrs.X_FORWARDED_FOR, ()),
            request.headers.getall(hdrs.X_FORWARDED_PROTO, ()),
            self._trusted,
        )


@asynccontextmanager
async def serve_http(
    app: web.Application, bind: str, port: int, *, trusted_proxies: Iterable[Network] = (), shutdown_s: float = 1.0
) -> AsyncIterator[HttpServer]:
    """Serve an application until the context ends. Raises ``OSError`` when the address cannot be taken."""
    server = HttpServer(app, trusted_proxies=trusted_proxies, shutdown_s=shutdown_s)
    await server.start(bind, port)
    try:
        yield server
    finally:
        await server.close()


class _Connection(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's protocol, and ends it at its deadlines."""

    def __init__(self, server: HttpServer, inner: web.RequestHandler) -> None:
        self.address = ""
        self.waiting_since_s = 0.0
        self._server = server
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._request: web.Request | None = None
        self._has_begun = False
        self._body_began_s = 0.0
        self._body_bytes = 0
        self._pipelined_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to act: no complete request is under way, and no answer is being written."""
        if self._write_timer is not None:
            return False
        return self._request is None or self._is_body_awaited()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        real = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            real.abort()
            return
        self._transport = real
        self._wait_for_request("headers", HEADERS_WITHIN_S)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._stop_timers()
            self._server.release(self)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._request is None and not self._has_begun:
            self._has_begun = True
            self._wait_for_request("headers", HEADERS_WITHIN_S)
        elif self._request is not None:
            self._body_bytes += len(data)
            if self._request.content.is_eof() and hdrs.UPGRADE not in self._request.headers:
                self._pipelined_bytes += len(data)
                if self._pipelined_bytes > MOST_PIPELINED_BYTES:
                    self.end("pipelining")
                    return
        self._inner.data_received(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._write_timer = self._loop.call_later(WRITE_WITHIN_S, self.end, "answer")

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._inner.resume_writing()

    def on_request(self, request: web.Request) -> None:
        """Note that the headers of a request have come, and its handler begins."""
        self._stop_timer()
        self._request = request
        self._has_begun = False
        self._body_bytes = self._pipelined_bytes = 0
        if not request.content.is_eof():
            self.waiting_since_s = self._body_began_s = self._loop.time()
            self._timer = self._loop.call_later(BODY_WITHIN_S, self._check_body)

    def on_answer(self) -> None:
        """Note that the handler has ended."""
        self._request = None
        if self._transport is not None:
            self._wait_for_request("idle", IDLE_S)

    def end(self, reason: _Reason) -> None:
        """Close the connection at once."""
        HTTP_CONNECTIONS_ENDED.labels(reason).inc()
        self._stop_timers()
        self._server.release(self)
        if self._transport is not None:
            self._transport.abort()

    def _wait_for_request(self, reason: _Reason, within_s: float) -> None:
        self._stop_timer()
        self.waiting_since_s = self._loop.time()
        self._timer = self._loop.call_later(within_s, self._check_request, reason, within_s)

    def _check_request(self, reason: _Reason, within_s: float) -> None:
        if self.is_waiting:
            self.end(reason)
        else:
            self._wait_for_request(reason, within_s)

    def _check_body(self) -> None:
        if self._request is None or self._request.content.is_eof():
            return
        spent_s = self._loop.time() - self._body_began_s
        left_s = BODY_WITHIN_S + self._body_bytes / LEAST_BYTES_PER_S - spent_s
        if not self._is_body_awaited():
            left_s = BODY_WITHIN_S
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_body)
        else:
            self.end("body")

    def _is_body_awaited(self) -> bool:
        """Whether more of a body has to come. While reading is paused, it is our handler that has to act."""
        if self._request is None or self._request.content.is_eof():
            return False
        return self._transport is not None and self._transport.is_reading()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_timers(self) -> None:
        self._stop_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _is_a_mistake_of_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError, ConnectionError))


_library_log = logging.getLogger(f"{__name__}.aiohttp")
_library_log.addFilter(_is_a_mistake_of_ours)  # what strangers send is no reason to fill the log with tracebacks
