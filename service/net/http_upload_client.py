"""Uploads files to XMPP servers (XEP-0363), and downloads files from the bot's own server.

The XMPP server determines the upload URLs, which may point to any host. The address guard therefore checks them. TLS is
required unless ``allow_private`` is set, because the upload carries an authorization header.

URLs on the bot's own server are not checked and need no TLS, because this server need not be public. Files that people
have uploaded elsewhere are fetched by workers, not by this client.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from service.errors import AddressRefused, BadStatus, TooLarge
from service.feeds.canonical_urls import canonical_url, host_of
from service.net.address_guard import AddressGuard
from service.net.error_translation import time_limit, translate_error
from service.net.response_reader import MAX_BODY_BYTES, read_at_most
from service.settings import SettingsInvalid

TIMEOUT_S: Final = 15.0
_SUCCESS: Final = range(200, 300)


class HttpUploadClient:
    """Uploads files to XMPP servers, and downloads files from the bot's own server.

    - ``own_url`` is the URL prefix of the files on the bot's own server; "" if there is none.
    - ``own_host`` is the host to connect to for files on the bot's own server; "" means the host in the URL.
    - ``guard`` decides to which other addresses the client may connect. Its limits on ports do not apply.
    - ``ca_file`` is the path of a CA certificate to trust in addition to the system's; "" if there is none.
    """

    def __init__(self, own_url: str, own_host: str, guard: AddressGuard, ca_file: str) -> None:
        """Create the client. Raises :class:`SettingsInvalid` if ``ca_file`` contains no certificate."""
        self._own_url = f"{own_url.rstrip('/')}/" if own_url else ""  # the slash excludes other hosts
        self._own_host = own_host
        self._guard = guard
        self._tls = ssl.create_default_context()
        try:
            if ca_file:
                self._tls.load_verify_locations(ca_file)
        except OSError as error:  # an SSLError is one, too
            raise SettingsInvalid(
                f"xmpp_ca_file: {ca_file} is not a PEM file with a CA certificate that this program can read: {error}"
            ) from error

    def is_own(self, url: str) -> bool:
        """Return whether ``url`` is the URL of a file on the bot's own server."""
        return bool(self._own_url) and url.startswith(self._own_url) and "/../" not in url

    async def write(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Upload a file to ``url`` with a PUT request and the request headers ``headers``.

        Raises a :class:`FetchError` subclass if the server does not accept the file, :class:`AddressRefused` if the
        connection is not allowed, and :class:`BadUrl` if ``url`` is invalid.
        """
        async with self._request("PUT", url, body, headers):
            pass

    async def read(self, url: str) -> bytes:
        """Download a file from the bot's own server.

        Raises :class:`TooLarge` if the file is too large, and otherwise the same errors as :meth:`write`.
        """
        async with self._request("GET", url, None, {"Accept-Encoding": "identity"}) as response:
            body = await read_at_most(response, MAX_BODY_BYTES)
            if body is None:
                raise TooLarge(f"The file is larger than {MAX_BODY_BYTES:,} bytes.")
            return body

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with a timeout; yield the response, which has a 2xx status. Redirects are not followed.

        Raises the errors of :meth:`write`.
        """
        # The targets of redirects would not be checked.
        canonical_url(url)  # raises BadUrl for URLs that parsers interpret differently
        target, tls_name = URL(url, encoded=True), None
        socket_factory = None
        if not self.is_own(url):
            if target.scheme != "https" and not self._guard.allow_private:
                raise AddressRefused(f"{host_of(url)}: files are written with https only, and its URL is another.")
            # The own server chose the port; the guard's default ports are for publishers.
            socket_factory = self._guard._replace(extra_ports=(target.port or 0,)).create_socket
        elif self._own_host:
            headers, tls_name = {**headers, "Host": target.raw_authority}, target.raw_host
            target = target.with_host(self._own_host)
        connector = aiohttp.TCPConnector(ssl=self._tls, socket_factory=socket_factory, use_dns_cache=False)
        try:
            async with (
                time_limit(host_of(url), TIMEOUT_S),
                aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session,
                session.request(
                    method, target, data=body, headers=headers, allow_redirects=False, server_hostname=tls_name
                ) as response,
            ):
                if response.status not in _SUCCESS:
                    raise BadStatus(f"{host_of(url)} answered {response.status}.", status=response.status)
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise translate_error(error, host_of(url)) from error
