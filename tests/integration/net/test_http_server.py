"""Every HTTP server of ours bounds what a client can hold: real sockets that are slow, idle, many, or break off."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from service.errors import OperationalError
from service.net import http_server
from service.net.http_server import HttpServer, serve_http
from tests.support.waiting import until_so

_POST: Final = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
_GET: Final = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
_UPGRADE: Final = (
    b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _flood(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65_536)


async def _events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(5):
        await response.write(f"{number}\n".encode())
        await asyncio.sleep(0.1)
    return response


async def _socket(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


@asynccontextmanager
async def _serve(monkeypatch: pytest.MonkeyPatch, **limits: float) -> AsyncIterator[HttpServer]:
    for name, value in limits.items():
        monkeypatch.setattr(http_server, name, value)
    app = web.Application()
    app.add_routes(
        [
            web.post("/echo", _echo),
            web.get("/hello", _hello),
            web.get("/flood", _flood),
            web.get("/events", _events),
            web.get("/socket", _socket),
        ]
    )
    async with serve_http(app, "127.0.0.1", 0) as server:
        yield server


@asynccontextmanager
async def _connect(server: HttpServer, sent: bytes, address: str = "127.0.0.1") -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    try:
        writer.write(sent)
        yield reader, writer
    finally:
        writer.close()


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Read to the end."""
    async with asyncio.timeout(5):
        try:
            while await reader.read(65_536):
                pass
        except ConnectionResetError:
            pass
        return True


async def _drip(writer: asyncio.StreamWriter, byte: bytes) -> None:
    while not writer.is_closing():
        writer.write(byte)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("sent", [b"", b"GET /hello HTTP/1.1\r\nX: "], ids=["nothing", "part of a header"])
async def test_missing_headers_end_the_connection(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    async with _serve(monkeypatch, HEADERS_TIMEOUT_S=0.3) as server, _connect(server, sent) as (reader, _):
        assert await _is_closed(reader)


@pytest.mark.parametrize(
    "begun", [b"GET /hello HTTP/1.1\r\nX: ", _GET + b"GET /hello HTTP/1.1\r\nX: "], ids=["first", "second request"]
)
async def test_slow_headers_end_the_connection(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    limits = {"HEADERS_TIMEOUT_S": 0.3, "IDLE_TIMEOUT_S": 0.3}
    async with _serve(monkeypatch, **limits) as server, _connect(server, begun) as (reader, writer):
        dripping = asyncio.create_task(_drip(writer, b"x"))
        assert await _is_closed(reader)
        dripping.cancel()


async def test_a_slow_body_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    async with (
        _serve(monkeypatch, BODY_TIMEOUT_S=0.3) as server,
        _connect(server, begun) as (reader, writer),
    ):
        dripping = asyncio.create_task(_drip(writer, b"x"))
        assert await _is_closed(reader)
        dripping.cancel()


async def test_a_body_at_the_minimum_rate_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 400\r\n\r\n"
    limits = {"BODY_TIMEOUT_S": 0.3, "MIN_BYTES_PER_S": 200}
    async with _serve(monkeypatch, **limits) as server, _connect(server, begun) as (reader, writer):
        for _ in range(10):
            writer.write(b"x" * 40)
            await asyncio.sleep(0.1)
        assert (await reader.read()).endswith(b"x" * 400)


async def test_only_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _serve(monkeypatch, IDLE_TIMEOUT_S=0.4) as server, _connect(server, b"") as (reader, writer):
        for _ in range(4):
            writer.write(_GET)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.2)
        assert await _is_closed(reader)


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"
    async with _serve(monkeypatch, WRITE_TIMEOUT_S=0.3) as server, _connect(server, flood) as (reader, _):
        await until_so(lambda: server._open, "it is connected")
        await until_so(lambda: not server._open, "the connection is ended")
        assert await _is_closed(reader)


async def test_connections_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _serve(monkeypatch, MAX_CONNECTIONS_PER_ADDRESS=3) as server, AsyncExitStack() as stack:
        for _ in range(3):
            reader, _ = await stack.enter_async_context(_connect(server, _GET))
            await reader.readuntil(b"hello")
        async with _connect(server, _GET) as (reader, _):
            assert await _is_closed(reader)
        async with _connect(server, _GET, "127.0.0.9") as (reader, _):
            assert await reader.readuntil(b"hello")
        await stack.aclose()
        await until_so(lambda: not server._open, "all are closed")
        async with _connect(server, _GET) as (reader, _):
            assert await reader.readuntil(b"hello")


async def test_a_full_server_closes_the_longest_waiting_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with _serve(monkeypatch, MAX_CONNECTIONS=3) as server, AsyncExitStack() as stack:
        slow, _ = await stack.enter_async_context(_connect(server, _POST + b"bo"))
        await until_so(lambda: server._open, "it is connected")
        busy = await stack.enter_async_context(_connect(server, _UPGRADE))
        await busy[0].readuntil(b"\r\n\r\n")
        idle = [await stack.enter_async_context(_connect(server, _GET)) for _ in range(2)]
        for reader, _ in idle:
            await reader.readuntil(b"hello")
        assert await _is_closed(slow)
        newest, _ = await stack.enter_async_context(_connect(server, _GET))
        assert await newest.readuntil(b"hello")
        assert await _is_closed(idle[0][0])
        idle[1][1].write(_GET)
        assert await idle[1][0].readuntil(b"hello")
        assert not busy[0].at_eof()


async def test_a_fully_busy_server_refuses_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _serve(monkeypatch, MAX_CONNECTIONS=2) as server, AsyncExitStack() as stack:
        for _ in range(2):
            reader, _ = await stack.enter_async_context(_connect(server, _UPGRADE))
            await reader.readuntil(b"\r\n\r\n")
        async with _connect(server, _GET) as (reader, _):
            assert await _is_closed(reader)
        assert len(server._open) == 2


async def test_too_many_pipelined_requests_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    get = b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"
    async with (
        _serve(monkeypatch, MAX_PIPELINED_BYTES=10_000) as server,
        _connect(server, get) as (reader, writer),
    ):
        await reader.readuntil(b"\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"GET /hello HTTP/1.1\r\nX: " + b"x" * 1_000 + b"\r\n\r\n")
            await asyncio.sleep(0.01)
        assert await _is_closed(reader)


@pytest.mark.parametrize(
    ("sent", "breaks_off"),
    [
        (_POST + b"bo", True),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", False),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbody", False),
        (b"GET /hello HTTP/1.1\r\nbad header\r\n\r\n", False),
        (b"\x16\x03\x01 what is this\r\n\r\n", False),
    ],
    ids=["a body that breaks off", "bad chunks", "no gzip", "a bad header", "no HTTP"],
)
async def test_an_invalid_request_logs_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sent: bytes, *, breaks_off: bool
) -> None:
    with caplog.at_level(logging.INFO):
        async with _serve(monkeypatch) as server, _connect(server, sent) as (reader, writer):
            if breaks_off:
                writer.close()
            else:
                assert (await reader.readline()).split()[1] == b"400"
            writer.close()
            await until_so(lambda: not server._open, "the connection is closed")
    assert [record.getMessage() for record in caplog.records if record.name != "asyncio"] == []


async def test_streams_and_websockets_have_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dict.fromkeys(("HEADERS_TIMEOUT_S", "BODY_TIMEOUT_S", "WRITE_TIMEOUT_S", "IDLE_TIMEOUT_S"), 0.15)
    async with _serve(monkeypatch, **limits) as server:
        async with _connect(server, b"GET /events HTTP/1.0\r\n\r\n") as (reader, _):
            assert (await reader.read()).endswith(b"4\n")
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/socket") as socket:
            await asyncio.sleep(0.5)
            await socket.send_str("still here")
            assert await socket.receive_str() == "still here"


async def test_a_port_in_use_raises_an_error() -> None:
    port = unused_port()
    async with serve_http(web.Application(), "127.0.0.1", port):
        with pytest.raises(OperationalError, match=str(port)):
            async with serve_http(web.Application(), "127.0.0.1", port):
                pass
