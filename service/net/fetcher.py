"""The HTTP client for publishers, with limits on time and size.

It sends conditional GET requests for documents, and POST requests to hubs and to people's webhooks.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from math import inf
from typing import Self, cast

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from service.errors import BadHttp, BadRedirect, BadStatus, BadUrl
from service.feeds.canonical_urls import canonical_url, host_of, origin_of, reader_of, redirect_target
from service.feeds.credentials import Credential
from service.feeds.publisher_polling_hints import parse_retry_after
from service.model import Validators
from service.net import content_encoding
from service.net.address_guard import AddressGuard, is_internal
from service.net.address_guard import is_public as is_public_address
from service.net.error_translation import time_limit, translate_error
from service.net.link_headers import HubLinks, parse_hub_links
from service.net.response_reader import (
    BodyReader,
    BoundedResponseHandler,
    PublisherResponse,
    next_validators,
    read_excerpt,
    refuse_large_headers,
    select_headers,
)
from service.observability.metrics import FETCH_TIME
from service.settings import Settings

MAX_REDIRECTS = 5
CONNECT_S = 10.0
TOTAL_S = 30.0
_RESOLVE_S = 3.0

_MAX_HEADER_FIELD_BYTES = 16 * 1024
_MAX_CONNECTIONS = 256
_MAX_CONNECTIONS_PER_HOST = 4
_KEEP_ALIVE_S = 4.0
"""Time for which an idle connection to a publisher is kept open. It is less than the 5 s after which many servers close
a connection, because a request that is sent at that moment is lost."""
_MAX_REASON_CHARS = 60

_OK = 200
_IM_USED = 226
_NOT_MODIFIED = 304
_FIRST_ERROR = 400
_PERMANENT = frozenset({301, 308})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_OF_POST = frozenset({307, 308})
_NO_HEADERS: Mapping[str, str] = {}
_ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, */*;q=0.8"

RedirectHandler = Callable[[str], Awaitable[None]]
"""A function that is called with the target host of a redirect. It waits until a request to this host is allowed, or
raises a :class:`service.errors.CoronetError`."""
CredentialFinder = Callable[[str], Awaitable[Credential]]


def user_agent(operator_url: str) -> str:
    """Return the user agent ``Coronet/VERSION (+URL)``, where URL is ``operator_url``.

    ``operator_url`` is the page where publishers can complain. If it is "", the parentheses contain "feed reader"
    instead.
    """
    return f"Coronet/{version('coronet')} ({f'+{operator_url}' if operator_url else 'feed reader'})"


def create_fetcher(
    settings: Settings, find_credential: CredentialFinder | None = None, *, total_s: float = TOTAL_S
) -> "Fetcher":
    """Return a fetcher that connects only to the addresses and ports that the settings allow.

    - ``find_credential`` returns the credential of a protected channel, given the channel's URL.
    - ``total_s`` is the time limit for one request including its redirects, in seconds.
    """
    guard = AddressGuard(settings.allow_private, settings.extra_ports, settings.allowed_networks)
    return Fetcher(user_agent(settings.console_public_url), guard, total_s, find_credential=find_credential)


class FetchResult(msgspec.Struct, frozen=True):
    """The result of a successful fetch.

    - ``status`` and ``url`` are the status and the URL of the final response.
    - ``body`` is None if the document has not changed: the status was 304, or the bytes are the same as before.
    - ``headers`` are selected headers with lower-case names.
    - ``validators`` are the ETag, the date and the hash of the document. The next request uses them to find out whether
      the document has changed.
    - ``private`` is true if the address of the publisher, or of a server that redirected the request, is not public.
    - ``permanent_url`` is the canonical URL to which the initial permanent redirects led; None if there were none. A
      redirect from an internal address to another host does not count as permanent.
    - ``took_s`` is the duration in seconds.
    - ``retry_after_s`` is the delay in seconds that the ``Retry-After`` header requests; None if there is none.
    - ``partial`` is true if the body contains only the entries added since the previous response (RFC 3229 with ``A-IM:
      feed``).
    - ``links`` are the WebSub hubs in the ``Link`` headers; set only if there is a body.
    - ``address`` is the publisher's IP address.
    - ``is_protected`` is true if the request carried a credential. Permanent redirects and hubs are then ignored: the
      credential is not valid elsewhere, and hubs would learn of a private document.
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
    partial: bool = False
    links: HubLinks = HubLinks()
    address: str = ""
    is_protected: bool = False


class Fetcher:
    """Fetches URLs through a pool of persistent connections; an async context manager.

    - ``user_agent`` is the text returned by :func:`user_agent`. When a document is requested, the number of subscribers
      is added inside the parentheses.
    - ``guard`` decides which addresses may be connected to. A redirect from a public address to a private network is
      always refused.
    - ``total_s`` is the time limit for one fetch including its redirects, in seconds.
    - ``find_credential`` returns the credential of a protected channel, given the channel's URL.

    The fetcher uses no cookies, no proxies from the environment, and no DNS cache.
    """

    def __init__(
        self,
        user_agent: str,
        guard: AddressGuard,
        total_s: float = TOTAL_S,
        find_credential: CredentialFinder | None = None,
    ) -> None:
        self._user_agent = user_agent
        self._guard = guard
        self._total_s = total_s
        self._find_credential = find_credential
        self._bodies = BodyReader()

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        # If the operator has allowed private networks, there is a second pool, which connects only to public addresses.
        # Requests that must not reach these networks use the second pool.
        self._resolver: AbstractResolver = aiohttp.DefaultResolver()
        self._session = self._public_session = self._open_session(self._guard)
        if self._guard.allowed_networks:
            self._public_session = self._open_session(self._guard._replace(allowed_networks=()))
        return self

    def _open_session(self, guard: AddressGuard) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            socket_factory=guard.create_socket,
            use_dns_cache=False,
            limit=_MAX_CONNECTIONS,
            limit_per_host=_MAX_CONNECTIONS_PER_HOST,
            keepalive_timeout=_KEEP_ALIVE_S,
            ssl=ssl.create_default_context(),
        )
        protocol: type[ResponseHandler] = BoundedResponseHandler
        # There is no public way to set the protocol class of a connector's connections.
        connector._factory = functools.partial(protocol, loop=asyncio.get_running_loop())  # noqa: SLF001 - see above
        return aiohttp.ClientSession(
            connector=connector,
            response_class=PublisherResponse,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            max_line_size=_MAX_HEADER_FIELD_BYTES,
            max_field_size=_MAX_HEADER_FIELD_BYTES,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._session.close()
        await self._public_session.close()
        await self._resolver.close()

    async def address_of(self, host: str) -> str:
        """Return the first public IP address of ``host``, the host of a canonical URL.

        The result is "" if the host has no public address, or if DNS does not respond.
        """
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_RESOLVE_S):
                found = await self._resolver.resolve(host.strip("[]"), family=socket.AF_UNSPEC)
            return next((info["host"] for info in found if is_public_address(info["host"])), "")
        return ""

    async def fetch(
        self,
        url: str,
        validators: Validators | None = None,
        subscribers: int = 0,
        on_redirect: RedirectHandler | None = None,
        *,
        within_s: float = inf,
        public_only: bool = False,
        credential: Credential | None = None,
    ) -> FetchResult:
        """Fetch ``url`` (the URL of a channel, or any canonical URL) with a GET request, and follow redirects.

        - ``validators`` are the ETag, the date and the body's hash from the last response. The ETag and the date make
          the request conditional. The hash is used to recognise an unchanged body.
        - ``subscribers`` is the number of subscribers to state in the user agent.
        - ``on_redirect`` is called with the target host of each redirect before the redirect is followed.
        - ``within_s`` can shorten this fetcher's time limit, but not extend it.
        - If ``public_only`` is true, connections to private networks are refused, even if the operator allows them.
        - ``credential`` is sent to the origin of ``url`` only. If it is None and the channel is protected, its stored
          credential is used.

        Raises a :class:`FetchError` subclass if there is no usable response, :class:`AddressRefused` if a connection is
        not allowed, and :class:`BadUrl` if a URL is invalid, or if a credential would be sent without encryption to a
        public host. Exceptions raised by ``on_redirect`` are propagated.
        """
        started_s = time.monotonic()
        if credential is None and reader_of(url) and self._find_credential is not None:
            credential = await self._find_credential(url)
        url, known = canonical_url(url), validators or Validators()
        headers = {**_conditional_headers(known), "User-Agent": _user_agent_for(self._user_agent, subscribers)}
        secret = {credential.header: credential.value} if credential is not None else {}
        if secret and url.startswith("http:"):
            await self._refuse_public_host(url)
        sending = self._send("GET", url, headers, secret, on_redirect=on_redirect, public_only=public_only)
        with FETCH_TIME.time():
            async with time_limit(host_of(url), min(within_s, self._total_s)), sending as response:
                result = await self._read_response(response, known, started_s)
        if secret:
            return msgspec.structs.replace(result, permanent_url=None, links=HubLinks(), is_protected=True)
        return result

    async def _refuse_public_host(self, url: str) -> None:
        """Raise :class:`BadUrl` unless ``url`` is on a private network that the operator allows."""
        is_allowed = self._guard.allow_private or bool(self._guard.allowed_networks)
        if not is_allowed or await self.address_of(host_of(url)):
            raise BadUrl("A login is sent only to addresses that start with https://.")

    async def post(
        self,
        url: str,
        body: Mapping[str, str] | bytes,
        on_redirect: RedirectHandler | None = None,
        *,
        public_only: bool = False,
        further_headers: Mapping[str, str] = _NO_HEADERS,
    ) -> int:
        """Send a form (WebSub §5.1) or bytes to ``url`` with a POST request; return the status of the final response.

        - ``on_redirect`` is called with the target host of each redirect before the redirect is followed.
        - If ``public_only`` is true, connections to private networks are refused, even if the operator allows them.

        Raises the same errors as :meth:`fetch`. A status of 400 or above raises :class:`BadStatus`, whose text quotes
        the beginning of the response.
        """
        url = canonical_url(url)
        headers = {"User-Agent": self._user_agent, "Accept": "*/*", "Accept-Encoding": "identity", **further_headers}
        sending = self._send("POST", url, headers, body=body, on_redirect=on_redirect, public_only=public_only)
        with FETCH_TIME.time():
            async with time_limit(host_of(url), self._total_s), sending as response:
                if response.status >= _FIRST_ERROR:
                    raise _bad_status(response, await read_excerpt(response))
                return response.status  # the body is not used

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        secret: Mapping[str, str] = _NO_HEADERS,
        *,
        body: Mapping[str, str] | bytes | None = None,
        on_redirect: RedirectHandler | None,
        public_only: bool,
    ) -> AsyncIterator[PublisherResponse]:
        """Send a request and follow redirects; yield the last response.

        ``secret`` are headers that are sent until the first redirect to another origin.

        aiohttp's exceptions are translated to Coronet's errors, even if they are raised while the caller reads the
        response.
        """
        first, permanent_url, is_permanent, private = url, None, True, False
        for _ in range(MAX_REDIRECTS + 1):
            session = self._public_session if public_only else self._session
            try:
                async with session.request(
                    method, URL(url, encoded=True), headers={**headers, **secret}, data=body, allow_redirects=False
                ) as any_response:
                    response = cast("PublisherResponse", any_response)  # the session's response_class
                    refuse_large_headers(response)
                    is_public = not response.peer_address or is_public_address(response.peer_address)
                    private = private or not is_public
                    response.canonical_url, response.permanent_url, response.private = url, permanent_url, private
                    if response.status not in _REDIRECTS:
                        yield response
                        return
                    target = _redirect_target(response)
                    public_only = public_only or is_public
                    # Whether the target's address is public is not known, so the channel keeps its URL.
                    leaves = is_internal(response.peer_address) and host_of(target) != host_of(url)
                    is_permanent = is_permanent and response.status in _PERMANENT and not leaves
                    secret = secret if origin_of(target) == origin_of(url) else _NO_HEADERS
                    url = target
            except (aiohttp.ClientError, OSError) as error:
                raise translate_error(error, host_of(url)) from error
            if on_redirect is not None:
                await on_redirect(host_of(url))
            if is_permanent:
                permanent_url = canonical_url(url)
        raise BadRedirect(f"{first} redirects more than {MAX_REDIRECTS} times.")

    async def _read_response(self, response: PublisherResponse, known: Validators, started_s: float) -> FetchResult:
        headers = select_headers(response.headers)
        body, body_sha256 = None, known.body_sha256
        if response.status == _OK:
            body, body_sha256 = await self._bodies.read(response, known.body_sha256)
        elif response.status == _IM_USED:
            _check_instance_manipulation(response, known)
            # The body is a delta: the stored hash remains that of the last complete body.
            body, _ = await self._bodies.read(response, "")
        elif response.status != _NOT_MODIFIED:
            raise _bad_status(response, "")
        elif not known.etag and not known.last_modified:
            raise BadHttp(
                f"{response.host_name} answered 304 (not modified) to a request that named nothing to compare with."
            )
        return FetchResult(
            status=response.status,
            url=response.canonical_url,
            body=body,
            headers=headers,
            validators=next_validators(
                known, response.headers, replaced=response.status == _OK, body_sha256=body_sha256
            ),
            private=response.private,
            permanent_url=response.permanent_url,
            took_s=time.monotonic() - started_s,
            retry_after_s=_retry_after_s(response),
            partial=response.status == _IM_USED,
            links=parse_hub_links(response.headers.getall("Link", []) if body else [], response.canonical_url),
            address=response.peer_address,
        )


def _bad_status(response: PublisherResponse, excerpt: str) -> BadStatus:
    excerpt = excerpt or (response.reason or "")[:_MAX_REASON_CHARS]
    detail = f" ({excerpt})" if excerpt else ""
    return BadStatus(
        f"{response.host_name} answered {response.status}{detail}.",
        status=response.status,
        retry_after_s=_retry_after_s(response),
        url=response.canonical_url,
    )


def _retry_after_s(response: PublisherResponse) -> float | None:
    return parse_retry_after(response.headers.get("Retry-After", ""), time.time())


def _check_instance_manipulation(response: PublisherResponse, known: Validators) -> None:
    """Raise :class:`BadHttp` if a response with the status 226 (RFC 3229 §10.4.1) cannot be used.

    It can be used if it has the header ``IM: feed`` and the request had an ETag. The body then contains only the new
    entries.
    """
    done = ",".join(response.headers.getall("IM", [])).strip().lower()
    if done != "feed" or not known.etag:
        raise BadHttp(
            f"{response.host_name} answered with a change (226) of a kind that was not asked for: {done[:40]!r}."
        )


def _user_agent_for(user_agent: str, subscribers: int) -> str:
    readers = f"{subscribers} subscriber{'' if subscribers == 1 else 's'}"
    return f"{user_agent.removesuffix(')')}; {readers})" if user_agent.endswith(")") else user_agent


def _conditional_headers(known: Validators) -> dict[str, str]:
    headers = {"Accept": _ACCEPT, "Accept-Encoding": content_encoding.ACCEPTED}
    if known.etag:
        headers["If-None-Match"] = known.etag
        headers["A-IM"] = "feed"  # RFC 3229: only what is new since that ETag
    if known.last_modified:
        headers["If-Modified-Since"] = known.last_modified
    return headers


def _redirect_target(response: PublisherResponse) -> str:
    host, url = response.host_name, response.canonical_url
    if response.method == "POST" and response.status not in _REDIRECTS_OF_POST:
        raise BadRedirect(f"{host} redirects a form with status {response.status}, which is not followed.")
    location = response.headers.get("Location", "")
    if not location:
        raise BadRedirect(f"{host} redirects without saying where to.")
    try:
        target = redirect_target(url, location)
    except BadUrl as error:
        raise BadRedirect(f"{host} redirects to something that is no usable URL: {error}") from error
    if url.startswith("https:") and not target.startswith("https:"):
        raise BadRedirect(f"{host} redirects from https to http, which is not followed.")
    return target
