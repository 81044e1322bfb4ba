"""The client for files on XMPP servers (XEP-0363). It uploads files, and downloads files from the bot's own server.

The XMPP server determines upload URLs, which may point to any host. The address guard therefore applies to them, and
TLS is required, because the upload carries an authorization header. The URL prefix of the own server's files may be
exempt, because that server need not be public. Files that people have uploaded elsewhere are not read here; workers
fetch them like any other untrusted URL.
"""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from service.errors import AddressRefused, BadStatus, TooLarge
from service.feeds.urls import canonical_url
from service.net.address_guard import AddressGuard
from service.net.error_translation import time_limit, translate_error
from service.net.response_reader import MAX_BODY_BYTES, read_at_most

TIMEOUT_S: Final = 15.0
_SUCCESS: Final = range(200, 300)
_OK: Final = 200
_PORTS: Final = {"http": 80, "https": 443}


class UploadClient:
    """Uploads files to XMPP servers, and downloads files from the own server.

    ``own_url`` is the URL prefix of the own server's files; "" means that there is none. ``own_host`` is the host to
    connect to for these files; "" means the host in the URL. ``guard`` decides about connections to other servers, on
    any port.
    """

    def __init__(self, own_url: str, own_host: str, guard: AddressGuard) -> None:
        self._own_url = f"{own_url.rstrip('/')}/" if own_url else ""  # the slash excludes other hosts
        self._own_host = own_host
        self._guard = guard

    def is_own(self, url: str) -> bool:
        """Return whether ``url`` is the URL of a file on the own server."""
        return bool(self._own_url) and url.startswith(self._own_url) and "/../" not in url

    async def write(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Upload a file to ``url`` by PUT.

        Raises a :class:`FetchError` subclass, :class:`AddressRefused`, or :class:`BadUrl`.
        """
        async with self._request("PUT", url, body, headers) as response:
            if response.status not in _SUCCESS:
                raise BadStatus(f"{_host(url)} answered {response.status}.", status=response.status)

    async def read(self, url: str) -> bytes:
        """Download a file from the own server. Raises the same errors as :meth:`write`, and :class:`TooLarge`."""
        async with self._request("GET", url, None, {"Accept-Encoding": "identity"}) as response:
            if response.status != _OK:
                raise BadStatus(f"{_host(url)} answered {response.status}.", status=response.status)
            body = await read_at_most(response, MAX_BODY_BYTES)
            if body is None:
                raise TooLarge(f"The file is larger than {MAX_BODY_BYTES:,} bytes.")
            return body

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with a timeout. Redirects are not followed, because their targets are not checked."""
        connector = self._connector(url)
        try:
            async with (
                time_limit(_host(url), TIMEOUT_S),
                aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session,
                session.request(
                    method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise translate_error(error, _host(url)) from error

    def _connector(self, url: str) -> aiohttp.TCPConnector:
        canonical_url(url)  # raises BadUrl for URLs that parsers interpret differently
        parts = urlsplit(url)
        if self.is_own(url):
            return aiohttp.TCPConnector(
                resolver=_FixedHostResolver(self._own_host) if self._own_host else None, use_dns_cache=False
            )
        if parts.scheme != "https" and not self._guard.allow_private:
            raise AddressRefused(f"{_host(url)}: files are written with https only, and its URL is another.")
        # The own server chose the port; the guard's default ports are for publishers.
        ports = (parts.port or _PORTS.get(parts.scheme, 0),)
        guard = self._guard._replace(extra_ports=ports)
        return aiohttp.TCPConnector(socket_factory=guard.create_socket, use_dns_cache=False)


class _FixedHostResolver(AbstractResolver):
    """A DNS resolver that returns the addresses of one fixed host for every name."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of the fixed host as if they were those of ``host``."""
        found = await self._resolver.resolve(self._host, port, family)
        return [ResolveResult(**{**each, "hostname": host}) for each in found]

    async def close(self) -> None:
        """Close the DNS resolver that this object uses."""
        await self._resolver.close()


def _host(url: str) -> str:
    return urlsplit(url).hostname or url[:80]
