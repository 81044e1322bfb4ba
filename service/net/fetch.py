"""One conditional GET of a publisher's URL, within hard caps."""

import asyncio
import email.utils
import hashlib
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, cast

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from service.errors import BadHttp, BadRedirect, BadStatus, BadUrl, TooLarge, Unreachable
from service.feeds.urls import canonical_url, redirect_target
from service.model import Validators
from service.net import encoding, guard
from service.net.failures import as_error

MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
MAX_REDIRECTS = 5
CONNECT_S = 10.0
TOTAL_S = 30.0

_MAX_HEADER_FIELD_BYTES = 16 * 1024
_MAX_CONNECTIONS = 256
_MAX_CONNECTIONS_PER_HOST = 4
_MAX_VALIDATOR_CHARS = 1000
_MAX_RETRY_AFTER_S = 7 * 86400.0

_OK = 200
_NOT_MODIFIED = 304
_PERMANENT = frozenset({301, 308})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, */*;q=0.8"


MayFollow = Callable[[str], Awaitable[None]]
"""Waits until the host that a redirect leads to may be asked, or raises a :class:`service.errors.CoronetError`."""


class Fetched(msgspec.Struct, frozen=True):
    """A publisher's answer.

    ``body`` is None when it is what ``validators`` described already (304, or equal bytes).
    ``url`` is where the answer came from; ``permanent_url`` where the publisher says the channel has
    moved for good (canonical). ``private``: the publisher's address is not public.
    """

    status: int
    url: str
    body: bytes | None
    headers: Mapping[str, str]
    validators: Validators
    private: bool
    permanent_url: str | None
    took_s: float
    retry_after_s: float | None


class _Response(aiohttp.ClientResponse):
    """Remembers who answered: an answer without a body gives its connection back at once."""

    peer_address = ""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        peer = connection.transport.get_extra_info("peername") if connection.transport else None
        self.peer_address = peer[0] if peer else ""
        return await super().start(connection)


class Fetcher:
    """Fetches through one pool of kept-alive connections; an async context manager.

    ``user_agent`` is ``Coronet/VERSION (+URL)``; the number of subscribers a fetch stands for is added
    inside the parentheses. ``allow_private`` and ``extra_ports`` are the guard's. ``total_s`` bounds one
    fetch with all its redirects. No cookies, no proxies from the environment, no DNS cache.
    """

    def __init__(
        self, *, user_agent: str, allow_private: bool, extra_ports: tuple[int, ...], total_s: float = TOTAL_S
    ) -> None:
        self._user_agent = user_agent
        self._new_socket = guard.socket_factory(allow_private=allow_private, extra_ports=extra_ports)
        self._total_s = total_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        connector = aiohttp.TCPConnector(
            socket_factory=self._new_socket,
            use_dns_cache=False,
            limit=_MAX_CONNECTIONS,
            limit_per_host=_MAX_CONNECTIONS_PER_HOST,
            ssl=ssl.create_default_context(),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            response_class=_Response,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            max_line_size=_MAX_HEADER_FIELD_BYTES,
            max_field_size=_MAX_HEADER_FIELD_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def fetch(
        self,
        url: str,
        validators: Validators | None = None,
        subscribers: int = 0,
        may_follow: MayFollow | None = None,
    ) -> Fetched:
        """Fetch ``url`` (canonical), conditionally if ``validators`` are given.

        Raises a :class:`FetchError` subclass, :class:`AddressRefused`, or :class:`BadUrl`, and what
        ``may_follow`` raises before a redirect to another host is followed.
        """
        started_s = time.monotonic()
        first = canonical_url(url)
        try:
            async with asyncio.timeout(self._total_s):
                return await self._follow(first, validators or Validators(), subscribers, started_s, may_follow)
        except TimeoutError as error:
            raise Unreachable(f"{_host(first)} took longer than {self._total_s:g} s to answer.") from error

    async def _follow(
        self, first: str, known: Validators, subscribers: int, started_s: float, may_follow: MayFollow | None
    ) -> Fetched:
        url, permanent_url, moved_for_good = first, None, True
        headers = _request_headers(self._user_agent, subscribers, known)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                async with self._get(url, headers) as response:
                    _check_header_size(response, url)
                    if response.status not in _REDIRECTS:
                        return await _answer(response, url, known, permanent_url, started_s)
                    moved_for_good = moved_for_good and response.status in _PERMANENT
                    before, url = url, _next_hop(url, response.headers)
            except (aiohttp.ClientError, OSError) as error:
                raise as_error(error, _host(url)) from error
            if may_follow is not None and _host(url) != _host(before):
                await may_follow(_host(url))
            if moved_for_good:
                permanent_url = canonical_url(url)
        raise BadRedirect(f"{first} redirects more than {MAX_REDIRECTS} times.")

    def _get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[_Response]:
        if self._session is None:
            raise RuntimeError("Fetcher is used outside its context")
        response = self._session.get(URL(url, encoded=True), headers=headers, allow_redirects=False)
        return cast("AbstractAsyncContextManager[_Response]", response)  # the session's response_class


def _host(url: str) -> str:
    return URL(url, encoded=True).raw_host or url


def _request_headers(user_agent: str, subscribers: int, known: Validators) -> dict[str, str]:
    readers = f"{subscribers} subscriber{'' if subscribers == 1 else 's'}"
    headers = {
        "User-Agent": f"{user_agent.removesuffix(')')}; {readers})" if user_agent.endswith(")") else user_agent,
        "Accept": _ACCEPT,
        "Accept-Encoding": encoding.ACCEPTED,
    }
    if known.etag:
        headers["If-None-Match"] = known.etag
    if known.last_modified:
        headers["If-Modified-Since"] = known.last_modified
    return headers


def _check_header_size(response: aiohttp.ClientResponse, url: str) -> None:
    if sum(len(name) + len(value) + 4 for name, value in response.raw_headers) > MAX_HEADER_BYTES:
        raise TooLarge(f"{_host(url)}: the headers of its answer are larger than {MAX_HEADER_BYTES:,} bytes.")


def _next_hop(url: str, headers: CIMultiDictProxy[str]) -> str:
    location = headers.get("Location", "")
    if not location:
        raise BadRedirect(f"{_host(url)} redirects without saying where to.")
    try:
        target = redirect_target(url, location)
    except BadUrl as error:
        raise BadRedirect(f"{_host(url)} redirects to something that is no usable URL: {error}") from error
    if url.startswith("https:") and not target.startswith("https:"):
        raise BadRedirect(f"{_host(url)} redirects from https to http, which is not followed.")
    return target


async def _answer(
    response: _Response, url: str, known: Validators, permanent_url: str | None, started_s: float
) -> Fetched:
    retry_after_s = _retry_after_s(response.headers, time.time())
    body: bytes | None = None
    if response.status == _OK:
        body = await _body(response, url)
    elif response.status != _NOT_MODIFIED:
        reason = f" ({response.reason[:60]})" if response.reason else ""
        raise BadStatus(
            f"{_host(url)} answered {response.status}{reason}.", status=response.status, retry_after_s=retry_after_s
        )
    elif not known.etag and not known.last_modified:
        raise BadHttp(f"{_host(url)} answered 304 (not modified) to a request that named nothing to compare with.")
    validators = _validators(response.headers, body, known)
    return Fetched(
        status=response.status,
        url=url,
        body=None if validators.body_sha256 == known.body_sha256 else body,
        headers=_plain_headers(response.headers),
        validators=validators,
        private=bool(response.peer_address) and not guard.is_public(response.peer_address),
        permanent_url=permanent_url,
        took_s=time.monotonic() - started_s,
        retry_after_s=retry_after_s,
    )


async def _body(response: aiohttp.ClientResponse, url: str) -> bytes:
    coding = encoding.coding_of(response.headers.getall("Content-Encoding", []))
    if (response.content_length or 0) > MAX_BODY_BYTES:
        raise TooLarge(f"{_host(url)}: its answer is larger than {MAX_BODY_BYTES:,} bytes.")
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise TooLarge(f"{_host(url)}: its answer is larger than {MAX_BODY_BYTES:,} bytes.")
    return encoding.decoded(bytes(received), coding, MAX_BODY_BYTES)


def _validators(headers: Mapping[str, str], body: bytes | None, known: Validators) -> Validators:
    """Return what makes the next fetch conditional; a 304 may renew the validators (RFC 9110 §15.4.5)."""
    etag = headers.get("ETag", known.etag if body is None else "")
    last_modified = headers.get("Last-Modified", known.last_modified if body is None else "")
    return Validators(
        etag=etag if len(etag) <= _MAX_VALIDATOR_CHARS and etag.isprintable() else "",
        last_modified=last_modified if len(last_modified) <= _MAX_VALIDATOR_CHARS and last_modified.isascii() else "",
        body_sha256=known.body_sha256 if body is None else hashlib.sha256(body).hexdigest(),
    )


def _plain_headers(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return lower-case names and the values as text that every codec takes."""
    return {
        name.lower(): value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for name, value in headers.items()
    }


def _retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Read ``Retry-After`` (RFC 9110 §10.2.3): seconds, or a date; capped at a week, None if absurd."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), _MAX_RETRY_AFTER_S)
    try:
        at_s = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(at_s - now_s, 0.0), _MAX_RETRY_AFTER_S)
