"""Asking our own processes what they count: their addresses come from the store, so no guard stands in between."""

from types import TracebackType
from typing import Self

import aiohttp

from service.errors import Unreachable

_WITHIN_S = 2.0
_LARGEST_BYTES = 1 << 20


class Processes:
    """One pool of connections to workers and bots; an async context manager."""

    async def __aenter__(self) -> Self:
        """Open nothing yet."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WITHIN_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self._session.close()

    async def metrics(self, url: str) -> str:
        """Return the first megabyte of what a process serves as its metrics. Raises :class:`Unreachable`."""
        body = bytearray()
        try:
            async with self._session.get(url) as answer:
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _LARGEST_BYTES:
                        break
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unreachable(f"The process at {url} does not say what it counts: {error}") from error
        return body[:_LARGEST_BYTES].decode(errors="replace")
