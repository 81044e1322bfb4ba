"""The HTTP server of every process, which limits the resources that clients can occupy (guarantee I7).

aiohttp limits the size of requests, but neither their duration nor the number of connections. This server adds:

- deadlines for a request's headers, for its body (which must arrive at a minimum rate), for clients that stop reading a
  response, and for idle connections;
- limits on the number of connections per address and in total.

If the total limit is reached, a new connection replaces the connection whose client has kept the server waiting
longest. If the server is not waiting for any client, the new connection is closed.

A stream or WebSocket counts as one request, which lasts as long as its handler. If a request's body is truncated or
malformed, the response has the status 400. :func:`client_of` returns the client of a request, even if it is behind
trusted proxies.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Literal, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from service.errors import OperationalError
from service.net.client_address import Client, ForwardingConflict, Network, find_client, is_in_networks, network_of
from service.observability.metrics import HTTP_CONNECTIONS_ENDED

HEADERS_TIMEOUT_S = 20.0
"""Deadline for the headers of a request, from its first byte or from the opening of the connection."""
BODY_TIMEOUT_S = 20.0
MIN_BYTES_PER_S = 16_384
"""Minimum rate at which the body of a request must arrive. The deadline for a body is ``BODY_TIMEOUT_S`` plus the time
that the received bytes take at this rate."""
WRITE_TIMEOUT_S = 60.0
"""Time after which a connection is closed if the client has stopped reading a response."""
IDLE_TIMEOUT_S = 75.0
"""Time after which an idle connection is closed. It is longer than the 60 s for which nginx keeps connections;
otherwise nginx could send a request while the server closes the connection."""
MAX_CONNECTIONS = 500
MAX_CONNECTIONS_PER_ADDRESS = 100
"""Maximum number of connections from an IPv4 address or an IPv6 /64 network. The limit does not apply to trusted
proxies, which serve all clients."""
MAX_PIPELINED_BYTES = 64 * 1024
"""Maximum number of bytes that a client may send for further requests while one of its requests is being handled."""

_MAX_LINE_BYTES = 64 * 1024
"""Maximum length of a request line for aiohttp. It exceeds the application's own limit on URLs. Therefore most requests
with too long a URL reach the application, which responds with its own message."""
_MAX_HEADERS = 64
_LINGER_S = 5.0

_CLIENT: Final = web.RequestKey("client", Client)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Reason = Literal["headers", "body", "answer", "idle", "pipelining", "full"]


def client_of(request: web.Request) -> Client:
    """Return the client of a request to an :class:`HttpServer`."""
    return request[_CLIENT]


def is_client_fault(request: web.Request, error: BaseException) -> bool:
    """Return whether the client caused ``error`` by sending a malformed body or closing the connection."""
    if isinstance(error, ConnectionError):
        return request.transport is None or request.transport.is_closing()
    return isinstance(error, (web.RequestPayloadError, HttpProcessingError))


class HttpServer:
    """A running HTTP server for one application, and its connections.

    - ``port`` is the port on which it listens.
    - ``url`` is its address ``http://host:port`` for other machines. The host is this machine's name if the server
      listens on all addresses.
    """

    url: str
    port: int

    def __init__(self, app: web.Application, trusted_proxies: Iterable[Network]) -> None:
        self._trusted = tuple(trusted_proxies)
        self._open: dict[web.RequestHandler, _Connection] = {}
        app.middlewares.insert(0, self._middleware)

    async def listen(self, runner: web.AppRunner, bind: str, port: int) -> asyncio.Server:
        """Listen on ``bind:port``, and pass requests to the application of ``runner``.

        Raises :class:`OperationalError` if the address cannot be bound.
        """
        loop, handlers = asyncio.get_running_loop(), cast("web.Server", runner.server)
        try:
            listener = await loop.create_server(lambda: _Connection(self, handlers()), bind, port, reuse_address=True)
        except OSError as error:
            why = str(error.strerror).rpartition(": ")[2]  # without the address, which asyncio repeats
            raise OperationalError(
                f"Cannot listen at {bind}, port {port}: {why}. Stop the program that uses it, or choose another "
                "address or port: settings console_bind, console_port, metrics_bind, metrics_port."
            ) from error
        host, self.port, *_ = listener.sockets[0].getsockname()
        if ip_address(host).is_unspecified:
            host = socket.gethostname()
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        return listener

    def admit(self, connection: "_Connection") -> bool:
        """Register a new connection; return False if the caller must close it because a limit is reached.

        - The number of connections per client network is limited, except for trusted proxies. If there are too
          many, the result is False.
        - If there are too many connections in total, this method closes the one whose client has kept the server
          waiting longest. If the server is not waiting for any client, the result is False.
        """
        of_network = sum(each.network == connection.network for each in self._open.values())
        if of_network >= MAX_CONNECTIONS_PER_ADDRESS and not is_in_networks(connection.address, self._trusted):
            HTTP_CONNECTIONS_ENDED.labels("address").inc()
            return False
        if len(self._open) >= MAX_CONNECTIONS:
            waiting = [each for each in self._open.values() if each.is_waiting]
            if not waiting:
                HTTP_CONNECTIONS_ENDED.labels("full").inc()
                return False
            min(waiting, key=lambda each: each.waiting_since_s).end("full")
        self._open[connection.handler] = connection
        return True

    def release(self, connection: "_Connection") -> None:
        """Unregister a connection. This has no effect if the connection is not registered."""
        self._open.pop(connection.handler, None)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Determine the client of each request, and respond to malformed requests with the status 400."""
        # The middleware also notifies the request's :class:`_Connection` of its begin and end, for the deadlines.
        connection = self._open.get(request.protocol)
        if connection is None:  # has just been closed
            raise web.HTTPServiceUnavailable
        connection.on_request(request)
        request[_CLIENT] = Client(connection.address, is_secure=False)
        try:
            request[_CLIENT] = find_client(
                connection.address,
                request.forwarded,
                request.headers.getall(hdrs.X_FORWARDED_FOR, ()),
                request.headers.getall(hdrs.X_FORWARDED_PROTO, ()),
                self._trusted,
            )
            return await handler(request)
        except ForwardingConflict as error:
            return web.Response(status=400, text=f"{error}\n")
        except Exception as error:
            if not is_client_fault(request, error):
                raise
            response = web.Response(status=400, text="The body of the request broke off, or is malformed.\n")
            response.force_close()
            return response
        finally:
            connection.on_response()


@asynccontextmanager
async def serve_http(
    app: web.Application, bind: str, port: int, *, trusted_proxies: Iterable[Network] = (), shutdown_s: float = 1.0
) -> AsyncIterator[HttpServer]:
    """Serve an application on ``bind:port`` until the context ends; port 0 means any free port.

    - ``trusted_proxies`` are the networks of the proxies whose forwarding headers are accepted.
    - ``shutdown_s`` is how long requests in progress may continue after the context ends, in seconds.

    Raises :class:`OperationalError` if the address cannot be bound.
    """
    server = HttpServer(app, trusted_proxies)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_library_log,
        shutdown_timeout=shutdown_s,
        max_line_size=_MAX_LINE_BYTES,
        max_headers=_MAX_HEADERS,
        lingering_time=_LINGER_S,
    )
    await runner.setup()
    try:
        listener = await server.listen(runner, bind, port)
        try:
            yield server
        finally:
            listener.close()
    finally:
        await runner.cleanup()


class _Connection(asyncio.Protocol):
    """The protocol of one connection. It passes all events to aiohttp's protocol and enforces the deadlines."""

    def __init__(self, server: HttpServer, handler: web.RequestHandler) -> None:
        self.handler = handler
        self.address = self.network = ""
        self.waiting_since_s = 0.0
        self._server = server
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
        """Whether the server is waiting for a request or for the rest of a request's body.

        It is false while the server waits for the client to read a response.
        """
        if self._write_timer is not None:
            return False
        return self._request is None or self._is_body_awaited()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self.network = network_of(self.address)
        real = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            real.abort()
            return
        self._transport = real
        self._wait_for_request("headers", HEADERS_TIMEOUT_S)
        self.handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._stop_timers()
            self._server.release(self)
            self.handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._request is None and not self._has_begun:
            self._has_begun = True
            self._wait_for_request("headers", HEADERS_TIMEOUT_S)
        elif self._request is not None:
            self._body_bytes += len(data)
            if self._request.content.is_eof() and hdrs.UPGRADE not in self._request.headers:
                self._pipelined_bytes += len(data)
                if self._pipelined_bytes > MAX_PIPELINED_BYTES:
                    self.end("pipelining")
                    return
        self.handler.data_received(data)

    def eof_received(self) -> None:
        self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()
        self._write_timer = self._loop.call_later(WRITE_TIMEOUT_S, self.end, "answer")

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self.handler.resume_writing()

    def on_request(self, request: web.Request) -> None:
        """Handle the arrival of a request's headers: begin to count the bytes of its body, and set its deadline."""
        self._stop_timer()
        self._request = request
        self._has_begun = False
        self._body_bytes = self._pipelined_bytes = 0
        if not request.content.is_eof():
            self.waiting_since_s = self._body_began_s = self._loop.time()
            self._timer = self._loop.call_later(BODY_TIMEOUT_S, self._check_body)

    def on_response(self) -> None:
        """Set the deadline for the next request, because the handler of the current one has ended."""
        self._request = None
        if self._transport is not None:
            self._wait_for_request("idle", IDLE_TIMEOUT_S)

    def end(self, reason: _Reason) -> None:
        """Close the connection immediately, and count it under ``reason`` in the metric of ended connections."""
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
        left_s = BODY_TIMEOUT_S + self._body_bytes / MIN_BYTES_PER_S - spent_s
        if not self._is_body_awaited():
            left_s = BODY_TIMEOUT_S
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_body)
        else:
            self.end("body")

    def _is_body_awaited(self) -> bool:
        """Return whether the server is waiting for the rest of a request's body."""
        # The result is False while reading is paused, because then the server's handler is slow, not the client.
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


def _is_server_error(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError, ConnectionError))


_library_log = logging.getLogger(f"{__name__}.aiohttp")
_library_log.addFilter(_is_server_error)  # invalid requests of strangers must not fill the log with tracebacks
