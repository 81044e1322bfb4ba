"""Publishers with malicious or invalid HTTP responses: decompression bombs, endless streams, contradictions."""

import asyncio
import zlib
from collections.abc import Callable
from typing import NoReturn

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

from service.net.response_reader import MAX_BODY_BYTES
from tests.support.raw_http import Handler, answering, ok, redirect

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MEBIBYTE = bytes(1024 * 1024)


def gzip_of_a_gibibyte() -> bytes:
    """Return a gibibyte of zeros, compressed from repeated blocks of one mebibyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    head = packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)) * 1023


def brotli_of_a_gibibyte() -> bytes:
    packer = brotli.Compressor(quality=5)
    head: bytes = packer.process(MEBIBYTE) + packer.flush()
    block: bytes = packer.process(MEBIBYTE) + packer.flush()
    return head + block * 1023


def zstd_of_a_gibibyte() -> bytes:
    return zstandard.compress(MEBIBYTE) * 1024


def endless(start: bytes, again: bytes) -> Handler:
    """Return a handler that sends ``start``, then ``again`` repeatedly until the client disconnects."""

    async def answer(_head: str, writer: asyncio.StreamWriter) -> NoReturn:
        writer.write(start)
        while True:
            writer.write(again)
            await writer.drain()

    return answer


BAD_ANSWERS: dict[str, Callable[[], Handler]] = {
    "gzip bomb": lambda: answering(ok(gzip_of_a_gibibyte(), "Content-Encoding: gzip")),
    "brotli bomb": lambda: answering(ok(brotli_of_a_gibibyte(), "Content-Encoding: br")),
    "zstd bomb": lambda: answering(ok(zstd_of_a_gibibyte(), "Content-Encoding: zstd")),
    "gzip in gzip": lambda: answering(ok(b"x", "Content-Encoding: gzip, gzip")),
    "gzip twice": lambda: answering(ok(b"x", "Content-Encoding: gzip", "Content-Encoding: gzip")),
    "unknown encoding": lambda: answering(ok(b"x", "Content-Encoding: rot13")),
    "false gzip": lambda: answering(ok(b"<rss/>", "Content-Encoding: gzip")),
    "large by its own word": lambda: answering(OK + b"Content-Length: 99999999\r\n\r\nx", then_close=False),
    "large without a word": lambda: answering(OK + b"\r\n", bytes(MAX_BODY_BYTES + 1)),
    "endless": lambda: endless(OK + b"\r\n", MEBIBYTE),
    "endless chunks": lambda: endless(CHUNKED, b"10000\r\n" + bytes(0x10000) + b"\r\n"),
    "endless small chunks": lambda: endless(CHUNKED, (b"64\r\n" + bytes(100) + b"\r\n") * 1000),
    "endless packed": lambda: endless(OK + b"Content-Encoding: gzip\r\n\r\n", MEBIBYTE),
    "long header line": lambda: answering(OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n"),
    "many headers": lambda: answering(OK + b"X: y\r\n" * 100_000 + b"\r\n"),
    "one header of 20 MB": lambda: answering(OK + b"X: ", *[b"x" * 1_000_000] * 20),
    "headers of 20 MB": lambda: answering(OK, *[(b"X: " + b"x" * 9_000 + b"\r\n") * 100] * 23),
    "endless header": lambda: endless(OK + b"X: ", b"x" * 65_536),
    "endless headers": lambda: endless(OK, b"X: y\r\n" * 10_000),
    "endless status line": lambda: endless(b"HTTP/1.1 200 ", b"x" * 65_536),
    "long status line": lambda: answering(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"),
    "Content-Length too long": lambda: answering(OK + b"Content-Length: 100\r\n\r\nshort"),
    "Content-Length twice": lambda: answering(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
    "Content-Length negative": lambda: answering(OK + b"Content-Length: -1\r\n\r\nxx"),
    "broken chunk": lambda: answering(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n"),
    "chunks cut off": lambda: answering(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nxx"),
    "HTTP/0.9": lambda: answering(b"<rss/>"),
    "another protocol": lambda: answering(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "silence": answering,
    "304 without a validator": lambda: answering(b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'),
    "a change that nobody asked for": lambda: answering(b"HTTP/1.1 226 IM Used\r\nIM: feed\r\n\r\n<rss/>"),
    "302 without Location": lambda: answering(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
    "a redirect to itself": lambda: answering(redirect("/feed"), then_close=False),
    "odd bytes in Location": lambda: answering(redirect("http://\xff\xfe/\x01")),
}
"""Handler factories by defect; handlers are created for each publisher, because some are large."""

DRIPS = {
    "status line": b"HTTP/1.1 200 O",
    "headers": OK,
    "body": OK + b"\r\n",
    "chunks": CHUNKED,
    "a chunk's extension": CHUNKED + b"1;",
    "trailers": CHUNKED + b"0\r\n",
}
"""Beginnings of responses that continue byte by byte without end."""

ENDLESS = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a chunk's extension": (CHUNKED + b"1;", b"x" * 65_536),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
}
"""Beginnings of responses, and what follows without end instead of a body."""
