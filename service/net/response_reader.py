"""Reads HTTP responses, with size limits: the body, the validators and some other headers.

Validators are the ETag, the date and the hash of a document, by which the next request detects whether it has changed.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import cast

import aiohttp
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from cachetools import LRUCache
from multidict import CIMultiDictProxy

from service.errors import TooLarge
from service.model import Validators
from service.net import content_encoding

MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
_MAX_RECEIVED_BYTES = 2 * MAX_BODY_BYTES
_MAX_INTERIM_RESPONSES = 16
_FIRST_FINAL_STATUS = 200

_MAX_VALIDATOR_CHARS = 1000
_MAX_EXCERPT_BYTES = 4096
_MAX_EXCERPT_CHARS = 200
_MAX_KNOWN_BODIES = 10_000
_SELECTED_HEADERS = ("content-type", "content-language", "cache-control", "expires", "age", "date", "retry-after")


class BoundedResponseHandler(ResponseHandler):
    """A protocol that closes its connection if a response is far too large, or has too many interim responses.

    Interim responses have a status of 1xx. ``has_responded`` is true if the connection has already received a response
    to an earlier request.
    """

    has_responded = False
    _received_bytes = 0
    _interim_responses = 0

    def expect_response(self) -> None:
        """Reset the counts of received data, before a new response arrives."""
        self._received_bytes = self._interim_responses = 0

    @property
    def is_flooded(self) -> bool:
        """Whether the amount of data, or the number of interim responses, exceeds the limit for one response."""
        return self._received_bytes > _MAX_RECEIVED_BYTES or self._interim_responses > _MAX_INTERIM_RESPONSES

    def data_received(self, data: bytes) -> None:
        """Handle received data (called by asyncio)."""
        self._received_bytes += len(data)
        self._pass_unless_flooded(super().data_received, data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Handle a parsed response head (called by aiohttp's parser)."""
        self._interim_responses += data[0].code < _FIRST_FINAL_STATUS
        self._pass_unless_flooded(super().feed_data, data, size)

    def _pass_unless_flooded(self, handle: Callable[..., None], *args: object) -> None:
        if not self.is_flooded:
            handle(*args)
        elif self.transport is not None:
            self.transport.abort()


class PublisherResponse(aiohttp.ClientResponse):
    """An HTTP response with some additional attributes about the publisher and the redirects.

    - ``peer_address`` is the publisher's IP address.
    - ``canonical_url`` is the canonical URL of this response.
    - ``permanent_url`` and ``private`` have the same meaning as in :class:`service.net.fetcher.FetchResult`.

    The fetcher sets all of these attributes except ``peer_address``.
    """

    # The address is stored at the start, because a response without a body releases its connection at once.

    peer_address = ""
    canonical_url = ""
    permanent_url: str | None = None
    private = False

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Store the publisher's address, and wait for the response's status line and headers."""
        # aiohttp repeats a request if the connection is closed before the head has arrived. This is right for a reused
        # connection (RFC 9112 §9.3.1). On a new connection the publisher has received the request, so this method does
        # not repeat it.
        protocol = cast("BoundedResponseHandler", connection.protocol)  # the fetcher's connector makes no other
        peer = connection.transport.get_extra_info("peername") if connection.transport else None
        self.peer_address = peer[0] if peer else ""
        protocol.expect_response()
        try:
            await super().start(connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if protocol.is_flooded:
                raise TooLarge(f"{self.host_name} sends more than one answer can hold.") from error
            if protocol.has_responded:
                raise
            raise aiohttp.ClientConnectionError("closed before it ever answered") from error
        protocol.has_responded = True
        return self

    @property
    def host_name(self) -> str:
        """The requested host, for use in messages."""
        return self.url.raw_host or ""


class BodyReader:
    """Reads and decodes response bodies, and computes their SHA-256 hashes.

    The hashes of the last 10,000 bodies are cached, so that a body that is received again need not be hashed again. A
    body that is known to be unchanged is not decoded.
    """

    # A received body is recognized by its length and Python's hash of it (SipHash with a random key per process), which
    # takes a sixth of the time of SHA-256. A change is missed with a probability of 2⁻⁶⁴, and only until the next
    # change.

    def __init__(self) -> None:
        self._sha256_of: LRUCache[tuple[str, int, int], str] = LRUCache(_MAX_KNOWN_BODIES)

    async def read(self, response: PublisherResponse, known_sha256: str) -> tuple[bytes | None, str]:
        """Return (body, hash): the decoded body of ``response``, and the SHA-256 of the decoded body in hex.

        The body is None if the hash equals ``known_sha256``, the hash of the body that the caller already has. Raises
        :class:`BadHttp` if the body cannot be decoded, and :class:`TooLarge` if it exceeds the size limit.
        """
        coding = content_encoding.parse_content_coding(response.headers.getall("Content-Encoding", []))
        received = await read_at_most(response, MAX_BODY_BYTES)
        if received is None:
            raise TooLarge(f"{response.host_name}: its answer is larger than {MAX_BODY_BYTES:,} bytes.")
        fingerprint = (coding, len(received), hash(received))
        sha256 = self._sha256_of.get(fingerprint, "")
        body = None
        if not sha256 or sha256 != known_sha256:
            body = content_encoding.decode(received, coding, MAX_BODY_BYTES)
            sha256 = sha256 or hashlib.sha256(body).hexdigest()
        self._sha256_of[fingerprint] = sha256
        return (None if sha256 == known_sha256 else body), sha256


async def read_at_most(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the received body without decoding it; None if it is larger than ``max_bytes``."""
    if (response.content_length or 0) > max_bytes:
        return None
    received = await read_start(response, max_bytes + 1)
    return received if len(received) <= max_bytes else None


async def read_start(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the first ``max_bytes`` bytes of the received body, without decoding them."""
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) >= max_bytes:
            break
    return bytes(memoryview(received)[:max_bytes])


async def read_excerpt(response: aiohttp.ClientResponse) -> str:
    """Return up to 200 printable characters from the beginning of a response; "" if the response is compressed.

    They are taken from the first 4,096 bytes of the response.
    """
    received = await read_start(response, _MAX_EXCERPT_BYTES)
    if response.headers.get("Content-Encoding"):
        return ""
    words = " ".join(received.decode("utf-8", "replace").split())
    return "".join(character for character in words if character.isprintable())[:_MAX_EXCERPT_CHARS]


def refuse_large_headers(response: PublisherResponse) -> None:
    """Raise :class:`TooLarge` if the total size of all headers exceeds the limit.

    This check is needed because aiohttp limits only the size of each individual header.
    """
    if sum(len(name) + len(value) for name, value in response.raw_headers) > MAX_HEADER_BYTES:
        raise TooLarge(f"{response.host_name}: the headers of its answer are larger than {MAX_HEADER_BYTES:,} bytes.")


def next_validators(known: Validators, headers: Mapping[str, str], *, replaced: bool, body_sha256: str) -> Validators:
    """Return the validators for the next request: the ETag, the Last-Modified date and the hash of the body.

    - ``known`` contains the validators that the caller had before this response.
    - ``headers`` are the headers of this response. The ETag and the date are taken from them.
    - ``replaced`` is true if this response has a complete new body. A missing ETag or date is then left empty. If
      ``replaced`` is false, it is taken from ``known`` instead (RFC 9110 §15.4.5).
    - ``body_sha256`` is the hash of the current body.

    An ETag or date that cannot be sent in a request is also left empty.
    """
    etag = headers.get("ETag", "" if replaced else known.etag)
    last_modified = headers.get("Last-Modified", "" if replaced else known.last_modified)
    return Validators(
        etag=etag if len(etag) <= _MAX_VALIDATOR_CHARS and etag.isprintable() else "",
        last_modified=last_modified if len(last_modified) <= _MAX_VALIDATOR_CHARS and last_modified.isascii() else "",
        body_sha256=body_sha256,
    )


def select_headers(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return the headers that the rest of the program uses, as a dict with lower-case names.

    The values of several headers with the same name are joined with commas. Invalid UTF-8 in a value is replaced.
    """
    return {name: _text(", ".join(headers.getall(name))) for name in _SELECTED_HEADERS if name in headers}


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
