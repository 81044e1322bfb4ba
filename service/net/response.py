"""Reading one answer within the caps: its body, its validators, its links, and the headers that somebody asks for."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import cast

import aiohttp
import msgspec
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from cachetools import LRUCache
from multidict import CIMultiDictProxy

from service.errors import BadUrl, TooLarge
from service.feeds.urls import redirect_target
from service.model import Validators
from service.net import address_guard, content_encoding

MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
_MAX_ARRIVING_BYTES = 2 * MAX_BODY_BYTES
_MAX_INTERIM_ANSWERS = 16
_FIRST_FINAL = 200

_BYTES_BETWEEN = 2
"""After a header's name, and after its value."""
_MAX_VALIDATOR_CHARS = 1000
_MAX_READ_FOR_WORDS_BYTES = 4096
_MAX_WORDS_CHARS = 200
_MAX_BODIES_KNOWN = 10_000
_KEPT_HEADERS = ("content-type", "content-language", "cache-control", "expires", "age", "date", "retry-after")


class BoundedResponseHandler(ResponseHandler):
    """Hangs up on who sends far more than any answer holds, or interim answers without end: reading costs time.

    ``has_answered``: this connection has brought an answer before.
    """

    has_answered = False
    _arrived_bytes = 0
    _interim_answers = 0

    def expect_answer(self) -> None:
        """Count what arrives from now on as one answer."""
        self._arrived_bytes = self._interim_answers = 0

    @property
    def is_flooded(self) -> bool:
        """Whether more has arrived than is read for one answer."""
        return self._arrived_bytes > _MAX_ARRIVING_BYTES or self._interim_answers > _MAX_INTERIM_ANSWERS

    def data_received(self, data: bytes) -> None:
        """Take what arrives (asyncio calls this)."""
        self._arrived_bytes += len(data)
        self._unless_flooded(super().data_received, data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take the head of an answer (the client's parser calls this)."""
        self._interim_answers += data[0].code < _FIRST_FINAL
        self._unless_flooded(super().feed_data, data, size)

    def _unless_flooded(self, take: Callable[..., None], *what: object) -> None:
        if not self.is_flooded:
            take(*what)
        elif self.transport is not None:
            self.transport.abort()


class PublisherResponse(aiohttp.ClientResponse):
    """Remembers who answered: an answer without a body gives its connection back at once."""

    peer_address = ""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Note the address, and wait for the answer's head.

        The client asks once more if a connection closes before that, which is right for one that was kept
        (RFC 9112 §9.3.1). A publisher that hangs up on a new one has been asked, and is not asked twice.
        """
        protocol = cast("BoundedResponseHandler", connection.protocol)  # the fetcher's connector makes no other
        peer = connection.transport.get_extra_info("peername") if connection.transport else None
        self.peer_address = peer[0] if peer else ""
        protocol.expect_answer()
        try:
            await super().start(connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if protocol.is_flooded:
                raise TooLarge(f"{self.host_name} sends more than one answer can hold.") from error
            if protocol.has_answered:
                raise
            raise aiohttp.ClientConnectionError("closed before it ever answered") from error
        protocol.has_answered = True
        return self

    @property
    def host_name(self) -> str:
        """The host that was asked, as messages name it."""
        return self.url.raw_host or ""

    @property
    def private(self) -> bool:
        """Whether the address is not a public one."""
        return bool(self.peer_address) and not address_guard.is_public(self.peer_address)


class BodyReader:
    """Reads bodies, and knows again what came before: that is neither unpacked nor hashed with SHA-256.

    Of the last 10,000, the SHA-256 of what each unpacks to is kept. What arrived is recognised by its length and
    Python's own hash of it (SipHash, keyed anew in each process), which costs a sixth of SHA-256: a change is
    overlooked once in 2⁶⁴, and until the next one.
    """

    def __init__(self) -> None:
        self._sha256_of: LRUCache[tuple[str, int, int], str] = LRUCache(_MAX_BODIES_KNOWN)

    async def read(self, response: PublisherResponse, known_sha256: str) -> tuple[bytes | None, str]:
        """Return the body, or None if it is the known one, and its SHA-256 in hex.

        Raises :class:`BadHttp` or :class:`TooLarge`.
        """
        coding = content_encoding.parse_content_coding(response.headers.getall("Content-Encoding", []))
        received = await read_at_most(response, MAX_BODY_BYTES)
        if received is None:
            raise TooLarge(f"{response.host_name}: its answer is larger than {MAX_BODY_BYTES:,} bytes.")
        arrived = (coding, len(received), hash(received))
        sha256 = self._sha256_of.get(arrived, "")
        body = None
        if not sha256 or sha256 != known_sha256:
            body = content_encoding.decode(received, coding, MAX_BODY_BYTES)
            sha256 = sha256 or hashlib.sha256(body).hexdigest()
        self._sha256_of[arrived] = sha256
        return (None if sha256 == known_sha256 else body), sha256


async def read_at_most(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the body as it came; None if it is larger than ``max_bytes``."""
    if (response.content_length or 0) > max_bytes:
        return None
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) > max_bytes:
            return None
    return bytes(received)


async def read_excerpt(response: aiohttp.ClientResponse) -> str:
    """Read at most 4 kB of an answer, and return how its text begins; "" if it is packed."""
    received = bytearray()
    while chunk := await response.content.read(_MAX_READ_FOR_WORDS_BYTES - len(received)):
        received += chunk
    if response.headers.get("Content-Encoding"):
        return ""
    words = " ".join(received.decode("utf-8", "replace").split())
    return "".join(character for character in words if character.isprintable())[:_MAX_WORDS_CHARS]


def refuse_large_headers(response: PublisherResponse) -> None:
    """Raise :class:`TooLarge` if all headers together are over the cap; aiohttp caps each of them."""
    texts = tuple(chain.from_iterable(response.raw_headers))
    if sum(map(len, texts)) + _BYTES_BETWEEN * len(texts) > MAX_HEADER_BYTES:
        raise TooLarge(f"{response.host_name}: the headers of its answer are larger than {MAX_HEADER_BYTES:,} bytes.")


def next_validators(known: Validators, headers: Mapping[str, str], *, replaced: bool, body_sha256: str) -> Validators:
    """Return what makes the next fetch conditional.

    An answer that ``replaced`` what we knew replaces its validators too; any other may renew them one by
    one (RFC 9110 §15.4.5). What no request could carry is left out.
    """
    etag = headers.get("ETag", "" if replaced else known.etag)
    last_modified = headers.get("Last-Modified", "" if replaced else known.last_modified)
    return Validators(
        etag=etag if len(etag) <= _MAX_VALIDATOR_CHARS and etag.isprintable() else "",
        last_modified=last_modified if len(last_modified) <= _MAX_VALIDATOR_CHARS and last_modified.isascii() else "",
        body_sha256=body_sha256,
    )


def select_headers(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return those headers that somebody reads: lower-case names, and the values as text that every codec takes."""
    return {name: _text(", ".join(headers.getall(name))) for name in _KEPT_HEADERS if name in headers}


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


MAX_HUBS = 5
_MAX_LINK_CHARS = 8 * 1024

# A "<" inside a quoted parameter would begin another link; no publisher has one there.
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_PARAMETER = re.compile(r";\s*(rel|anchor)\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)


class HubLinks(msgspec.Struct, frozen=True):
    """The hubs and the topic (absolute URLs) that an answer's headers name, in their order (WebSub §4, RFC 8288 §3)."""

    hubs: tuple[str, ...] = ()
    topic: str = ""


def parse_hub_links(values: Iterable[str], base: str) -> HubLinks:
    """Return the hubs and the topic in the values of an answer's ``Link`` headers, relative to ``base``.

    What cannot be read is passed over: these headers carry much that is not for us.
    """
    hubs: dict[str, None] = {}
    topic = ""
    for target, parameters in _LINK.findall(",".join(values)[:_MAX_LINK_CHARS]):
        relations = _relations(parameters)
        if not relations & {"hub", "self"}:
            continue
        try:
            url = redirect_target(base, target)
        except BadUrl:
            continue
        if "hub" in relations and len(hubs) < MAX_HUBS:
            hubs[url] = None
        if "self" in relations:
            topic = topic or url
    return HubLinks(tuple(hubs), topic)


def _relations(parameters: str) -> set[str]:
    """Return a link's relation types in lower case; none if it is a link of something else ("anchor")."""
    first: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(parameters):
        first.setdefault(name.lower(), quoted or plain)
    return set() if "anchor" in first else set(first.get("rel", "").lower().split())
