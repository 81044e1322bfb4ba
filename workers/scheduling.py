"""Periodic phases of a worker's life; the only importer of apscheduler.

Late runs are coalesced and never overlap: a phase that takes longer than its interval is simply
run less often.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Self

from apscheduler.schedulers.asyncio import AsyncIOScheduler


class Phases:
    """Coroutine functions run every so many seconds while this context is open."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def every(self, interval_s: float, phase: Callable[[], Awaitable[None]], share: float = 1.0) -> None:
        """Run ``phase`` every ``interval_s``, at first after this share of it.

        What it raises is its own bug: it is logged.
        """

        async def uncancelled() -> None:
            # The end of the program is no failure of a phase, which the scheduler would log.
            with contextlib.suppress(asyncio.CancelledError):
                await phase()

        first = datetime.now(UTC) + timedelta(seconds=interval_s * share)
        self._scheduler.add_job(
            uncancelled, "interval", seconds=interval_s, next_run_time=first, name=phase.__qualname__
        )

    def __enter__(self) -> Self:
        """Start the clockwork, in the running event loop."""
        self._scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it; phases under way are cancelled with the loop's other tasks."""
        self._scheduler.shutdown(wait=False)
