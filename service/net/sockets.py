"""A WebSocket to a server of ours on this machine: no publisher, and so not through their guard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientError, ClientSession, ClientWebSocketResponse

from service.errors import Unreachable

_CONNECT_WITHIN_S = 10.0


@asynccontextmanager
async def websocket(url: str, protocol: str, largest_bytes: int) -> AsyncIterator[ClientWebSocketResponse]:
    """Connect, and close at the end; frames are at most so large. Raises :class:`Unreachable`."""
    async with ClientSession() as session:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                connected = await session.ws_connect(url, protocols=[protocol], max_msg_size=largest_bytes)
        except (ClientError, TimeoutError) as error:
            raise Unreachable(str(error) or "it took too long") from error
        async with connected:
            yield connected
