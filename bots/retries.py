"""Repetition of work that the store has refused because it was unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from service.errors import StoreUnavailable

_RETRY_S: Final = 0.5
_T = TypeVar("_T")
_log = structlog.get_logger()


async def retry_while_unavailable(work: Callable[[], Awaitable[_T]], *, logs_reason: bool = False) -> _T:
    """Await ``work()``, repeatedly while it raises StoreUnavailable, and return its result.

    With ``logs_reason``, the reason why the store is unavailable is logged.
    """
    last_reason = ""
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if logs_reason and str(error) != last_reason:
                last_reason = str(error)
                _log.warning("store unavailable, will retry", reason=last_reason)
            await asyncio.sleep(_RETRY_S)
