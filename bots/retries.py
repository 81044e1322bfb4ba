"""Repetition of work that the store has refused because it was unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from service.errors import StoreUnavailable

_RETRY_S: Final = 0.5
_T = TypeVar("_T")


async def retry_while_unavailable(work: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of ``work``, which is repeated until the store is available."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(_RETRY_S)
