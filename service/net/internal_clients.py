"""HTTP and WebSocket clients for Coronet's own processes.

The addresses of these processes come from the configuration or from the store, so the address guard is not needed.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp import hdrs
from multidict import istr

from service.errors import Unreachable
from service.net.response_reader import read_start

_TIMEOUT_S = 2.0
_MAX_METRICS_BYTES = 1 << 20
_MAX_REASON_BYTES = 400
_CONNECT_TIMEOUT_S = 10.0


class ProcessClient:
    """A client for the health endpoints of workers and bots; an async context manager.

    ``metrics_token`` is sent with requests for metrics. If it is "", no token is sent.
    """

    def __init__(self, metrics_token: str = "") -> None:
        self._headers = {hdrs.AUTHORIZATION: f"Bearer {metrics_token}"} if metrics_token else {}

    async def __aenter__(self) -> Self:
        """Create the connection pool. Connections are opened on demand."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._session.close()

    async def metrics(self, url: str) -> str:
        """Return the metrics of a process, read from ``url``. At most the first megabyte is returned.

        Raises :class:`Unreachable` if the process does not respond, or responds without metrics.
        """
        status, body = await self._get_start(url, _MAX_METRICS_BYTES, self._headers)
        if status != HTTPStatus.OK:
            raise Unreachable(f"The process at {url} does not show its metrics: it answers {status}.")
        return body

    async def unready_reason(self, url: str) -> str:
        """Return the reason why the process at ``url`` is not ready (``/readyz``); "" if it is ready.

        Raises :class:`Unreachable` if the process does not respond.
        """
        status, body = await self._get_start(f"{url}/readyz", _MAX_REASON_BYTES)
        return "" if status == HTTPStatus.OK else body.strip() or f"It answers {status}."

    async def _get_start(self, url: str, max_bytes: int, headers: Mapping[istr, str] | None = None) -> tuple[int, str]:
        """Send a GET request; return the response as (status, text).

        The text is decoded from at most the first ``max_bytes`` bytes of the body. Raises :class:`Unreachable` if there
        is no response.
        """
        try:
            async with self._session.get(url, headers=headers) as answer:
                return answer.status, (await read_start(answer, max_bytes)).decode(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unreachable(f"The process at {url} does not answer: {error}") from error


async def send_request(
    method: str, url: str, *, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | None, within_s: float
) -> tuple[int, str, bytes]:
    """Send an HTTP request to ``url``; return the response as (status, media type, body).

    Redirects are not followed. Raises :class:`Unreachable` if there is no response within ``within_s`` seconds.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(within_s)) as http,
            http.request(method, url, params=query, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status, answer.content_type, await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(str(error) or "it took too long") from error


@asynccontextmanager
async def connect_websocket(
    url: str, protocol: str, largest_bytes: int
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Open a WebSocket with the subprotocol ``protocol``, and close it when the context ends.

    ``largest_bytes`` is the maximum size of a received message in bytes. Raises :class:`Unreachable` if the connection
    fails.
    """
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                connected = await session.ws_connect(url, protocols=[protocol], max_msg_size=largest_bytes)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(str(error) or "it took too long") from error
        async with connected:
            yield connected
