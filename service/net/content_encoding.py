"""Decoding of compressed bodies (content codings, RFC 9110 §8.4): gzip, deflate, br or zstd, with a size limit.

A decoder produces at most one byte more than the limit. Thus a small body that expands to a huge size (a decompression
bomb) cannot exhaust memory.
"""

import io
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

from service.errors import BadHttp, TooLarge

ACCEPTED = "gzip, deflate, br, zstd"

_ZLIB_METHOD = 8
_ZLIB_CHECK = 31
_MAX_GZIP_MEMBERS = 16
_MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


def parse_content_coding(values: list[str]) -> str:
    """Return the content coding that the values of ``Content-Encoding`` headers name; "" if there is none.

    Raises :class:`BadHttp` if the coding is unknown or there are several codings.
    """
    named = [name.strip().lower() for value in values for name in value.split(",")]
    codings = [name for name in named if name not in ("", "identity")]
    if len(codings) > 1:
        raise BadHttp("The response is encoded more than once ({codings}).", codings=", ".join(codings)[:80])
    if codings and codings[0] not in _DECODERS:
        raise BadHttp("The response has an unknown encoding, {coding}.", coding=repr(codings[0][:40]))
    return codings[0] if codings else ""


def decode(body: bytes, coding: str, max_bytes: int) -> bytes:
    """Decompress ``body``, which has the content coding ``coding``.

    Raises :class:`BadHttp` if the body is corrupt or truncated, and :class:`TooLarge` if the result has more than
    ``max_bytes`` bytes.
    """
    if not coding or not body:
        return body
    try:
        plain = _DECODERS[coding](body, max_bytes + 1)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as error:
        raise BadHttp("The response is not valid {coding}.", coding=coding) from error
    if len(plain) > max_bytes:
        raise TooLarge(f"The answer unpacks to more than {max_bytes:,} bytes.")
    return plain


def _gunzip(body: bytes, limit: int, window_bits: int = 16 + zlib.MAX_WBITS) -> bytes:
    """Decompress a body to at most ``limit`` bytes.

    The format is gzip by default; ``window_bits`` can select the zlib format instead.
    """
    plain = b""
    for _ in range(_MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(window_bits)
        plain += member.decompress(body, limit - len(plain))
        if len(plain) >= limit:
            return plain
        if not member.eof:
            raise EOFError("it ends too early")
        body = member.unused_data
        if body[:2] != b"\x1f\x8b":  # some servers pad with zeros
            return plain
    raise EOFError("it has too many parts")


def _inflate(body: bytes, limit: int) -> bytes:
    # "deflate" means zlib (RFC 9110 §8.4.1.2), but many servers send raw deflate.
    zlib_header = body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2], "big") % _ZLIB_CHECK == 0
    return _gunzip(body, limit, zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)


def _unbrotli(body: bytes, limit: int) -> bytes:
    stream = brotli.Decompressor()
    plain = bytearray(stream.process(body, output_buffer_limit=limit))
    while len(plain) < limit and not stream.can_accept_more_data() and not stream.is_finished():
        plain += stream.process(b"", output_buffer_limit=limit - len(plain))
    if len(plain) < limit and not stream.is_finished():
        raise EOFError("it ends too early")
    return bytes(plain[:limit])


def _unzstd(body: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).stream_reader(
        io.BytesIO(body), read_across_frames=True
    )
    return stream.read(limit)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
