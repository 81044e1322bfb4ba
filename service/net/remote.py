"""One request to a console of ours, wherever it runs: no publisher, and so not through their guard."""

from collections.abc import Mapping
from typing import NamedTuple

import aiohttp

from service.errors import Unreachable


class Said(NamedTuple):
    """What came back."""

    status: int
    media_type: str
    body: bytes


async def send(
    method: str, url: str, *, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | None, within_s: float
) -> Said:
    """Send a request and return what came back, without following redirects. Raises :class:`Unreachable`."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(within_s)) as http,
            http.request(method, url, params=query, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return Said(answer.status, answer.content_type, await answer.read())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(str(error) or "it took too long") from error
