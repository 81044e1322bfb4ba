"""Bulk changes: the same change to many channels or feeds, several at once and for a limited time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from service.asyncio_tasks import cancel_and_wait
from service.errors import CoronetError

_CONCURRENCY: Final = 8

_Item = TypeVar("_Item")


async def change_each(
    items: Iterable[_Item], change: Callable[[_Item], Awaitable[None]], time_limit_s: float, fatal: type[CoronetError]
) -> tuple[int, list[tuple[_Item, CoronetError]]]:
    """Call ``change`` on each of ``items``, several at once.

    Return the number of successful calls, and the items whose calls failed with their errors. Items that remain after
    ``time_limit_s`` seconds are in neither result. An error of the class ``fatal`` ends all calls and is raised.
    """
    remaining, done = iter(items), 0
    failed: list[tuple[_Item, CoronetError]] = []

    async def work() -> None:
        nonlocal done
        for item in remaining:
            try:
                await change(item)
            except fatal:
                raise
            except CoronetError as error:
                failed.append((item, error))
            else:
                done += 1

    tasks = [asyncio.create_task(work()) for _ in range(_CONCURRENCY)]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(time_limit_s):
                await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)
    return done, failed
