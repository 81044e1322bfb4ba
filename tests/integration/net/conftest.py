"""A fetcher that may connect to loopback, and one that may not."""

from collections.abc import AsyncIterator

import pytest

from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher

AGENT = "Coronet/0.1.0 (+https://feeds.example/about)"


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    async with Fetcher(AGENT, AddressGuard(allow_private=True)) as fetcher:
        yield fetcher


@pytest.fixture
async def strict_fetcher() -> AsyncIterator[Fetcher]:
    async with Fetcher(AGENT, AddressGuard(allow_private=False)) as fetcher:
        yield fetcher


@pytest.fixture
async def hasty_fetcher() -> AsyncIterator[Fetcher]:
    async with Fetcher(AGENT, AddressGuard(allow_private=True), total_s=0.5) as fetcher:
        yield fetcher
