"""HTTP and WebSocket clients for our own processes, whose addresses need no guard: they are set, or from the store."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp import hdrs
from multidict import istr

from service.errors import Unreachable

_WITHIN_S = 2.0
_LARGEST_BYTES = 1 << 20
_LONGEST_REASON_BYTES = 400
_CONNECT_WITHIN_S = 10.0


class ProcessClient:
    """One pool of connections to workers and bots; an async context manager."""

    def __init__(self, metrics_token: str = "") -> None:
        """Ask for metrics with this token, "" for none."""
        self._headers = {hdrs.AUTHORIZATION: f"Bearer {metrics_token}"} if metrics_token else {}

    async def __aenter__(self) -> Self:
        """Open nothing yet."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WITHIN_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._session.close()

    async def metrics(self, url: str) -> str:
        """Return the first megabyte of what a process serves as its metrics. Raises :class:`Unreachable`."""
        status, body = await self._first(url, _LARGEST_BYTES, self._headers)
        if status != HTTPStatus.OK:
            raise Unreachable(f"The process at {url} does not show its metrics: it answers {status}.")
        return body

    async def why_not_ready(self, url: str) -> str:
        """Return why the process of which this is the URL cannot do its work; "" if it can. Raises Unreachable."""
        status, body = await self._first(f"{url}/readyz", _LONGEST_REASON_BYTES)
        return "" if status == HTTPStatus.OK else body.strip() or f"It answers {status}."

    async def _first(self, url: str, most_bytes: int, headers: Mapping[istr, str] | None = None) -> tuple[int, str]:
        """Return an answer's status and the first bytes of its body."""
        body = bytearray()
        try:
            async with self._session.get(url, headers=headers) as answer:
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > most_bytes:
                        break
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unreachable(f"The process at {url} does not answer: {error}") from error
        return answer.status, body[:most_bytes].decode(errors="replace")


async def send_request(
    method: str, url: str, *, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | None, within_s: float
) -> tuple[int, str, bytes]:
    """Return the status, media type and body of an answer; redirects are not followed. Raises :class:`Unreachable`."""
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
    """Connect, and close at the end; frames are at most so large. Raises :class:`Unreachable`."""
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                connected = await session.ws_connect(url, protocols=[protocol], max_msg_size=largest_bytes)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(str(error) or "it took too long") from error
        async with connected:
            yield connected
