"""Fixtures: a console over a real Redis that is empty at the start of each test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from aiohttp import web

from service.store import Store
from tests.support.console import Visitor, console, logged_in, stranger


@pytest_asyncio.fixture
async def served(store: Store) -> AsyncIterator[tuple[str, web.Application]]:
    async with console(store) as running:
        yield running


@pytest_asyncio.fixture
async def ada(served: tuple[str, web.Application], store: Store) -> AsyncIterator[Visitor]:
    """A logged-in admin."""
    async with logged_in(served[0], store) as somebody:
        yield somebody


@pytest_asyncio.fixture
async def eve(served: tuple[str, web.Application]) -> AsyncIterator[Visitor]:
    """A client that is not logged in."""
    async with stranger(served[0]) as somebody:
        yield somebody
