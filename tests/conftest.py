"""The servers that tests share, one each per test process, started when first asked for: all are real."""

import asyncio
import traceback
from asyncio import constants
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import hypothesis
import pytest
import pytest_asyncio

from service.embedded.prosody import PrivateProsody
from service.embedded.redis import PrivateRedis
from service.settings import Settings
from service.store import Store, opened
from tests.support.ejabberd import PrivateEjabberd
from tests.support.prosody import ProsodyWithStrangers
from tests.support.redis_cluster import RedisCluster

# Laws hold at any speed: no example has a deadline, because the machine may be busy.
hypothesis.settings.register_profile("laws", deadline=None)
hypothesis.settings.load_profile("laws")

# In debug mode asyncio keeps of each future and each call the stack that made it: in C, of futures, all of it, some
# sixty frames under pytest, and read from files. That was two fifths of these tests' time; the nearest tell enough.
constants.DEBUG_STACK_DEPTH = 5  # type: ignore[misc]  # final for mypy; asyncio looks it up each time
traceback.extract_stack.__defaults__ = (None, constants.DEBUG_STACK_DEPTH)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests of the whole product run first, in the order that was drawn for them.

    They take longest and mostly wait, while other workers of pytest-xdist have the small tests. A worker that has
    nothing left takes from the end of another's list: so the last tests are short ones, and a product that a whole
    module shares is started once.
    """
    items.sort(key=lambda item: not (item.get_closest_marker("e2e") or item.get_closest_marker("faults")))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a private Redis; take ``clean_redis`` instead unless what others left there does not matter."""
    async with PrivateRedis(tmp_path_factory.mktemp("redis")) as redis:
        yield redis.url


@pytest_asyncio.fixture
async def clean_redis(redis_url: str) -> str:
    """The URL of a private Redis that holds nothing, no scripts either."""
    reader, writer = await asyncio.open_unix_connection(urlsplit(redis_url).path)
    writer.write(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
    assert [await reader.readline(), await reader.readline()] == [b"+OK\r\n"] * 2
    writer.close()
    await writer.wait_closed()
    return redis_url


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    """Settings of a product whose store holds nothing; folders whose tests need more have their own."""
    return Settings(redis_url=clean_redis)


@pytest_asyncio.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """The store that these settings name, for the test's own hand."""
    async with opened(settings) as store:
        yield store


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisCluster]:
    """A private Redis Cluster of six nodes; whoever kills one of them takes a cluster of their own."""
    async with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def clean_cluster(redis_cluster: RedisCluster) -> RedisCluster:
    """A private Redis Cluster that holds nothing."""
    await redis_cluster.clear()
    return redis_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def prosody(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateProsody]:
    """A private Prosody; register accounts of your own names."""
    async with ProsodyWithStrangers(tmp_path_factory.mktemp("prosody")) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def ejabberd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateEjabberd]:
    """A private ejabberd; register accounts of your own names."""
    async with PrivateEjabberd(tmp_path_factory.mktemp("ejabberd")) as server:
        yield server
