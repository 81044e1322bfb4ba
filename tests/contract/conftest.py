"""The store on a real Redis that holds nothing at the start of each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from service.settings import Settings
from service.store import Store, connect


@pytest_asyncio.fixture
async def store(clean_redis: str) -> AsyncIterator[Store]:
    opened = await connect(Settings(redis_url=clean_redis))
    try:
        yield opened
    finally:
        await opened.close()
