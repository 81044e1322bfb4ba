"""A fleet of nodes in this process, on a real Redis, with a real publisher."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from service.embedded.sample_publisher import SamplePublisher
from service.host_process import serve_programs
from service.settings import Settings
from workers.main import WorkerProgram

StartWorker = Callable[[], Awaitable["asyncio.Task[None]"]]


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    return Settings(
        redis_url=clean_redis,
        allow_private=True,
        poll_interval_s=1.5,
        demand_factor=0.75,  # three polls per interval of a private channel with one subscriber
        maintenance_interval_s=1.0,
        lease_ttl_s=1.0,
    )


@pytest_asyncio.fixture
async def publisher(tmp_path: Path) -> AsyncIterator[SamplePublisher]:
    async with SamplePublisher(tmp_path / "publisher") as running:
        await running.publish("The first")
        yield running


@pytest_asyncio.fixture
async def start_worker(settings: Settings) -> AsyncIterator[StartWorker]:
    """Start one more worker; cancelling its task is an orderly stop."""
    running: list[asyncio.Task[None]] = []

    async def start() -> asyncio.Task[None]:
        running.append(asyncio.create_task(serve_programs(settings, [WorkerProgram])))
        return running[-1]

    try:
        yield start
    finally:
        for task in running:
            if not task.cancelling():  # a second cancellation would interrupt its clean-up, which closes the store
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
