"""Fixtures for real servers that tests share; each test process starts its own on first use."""

import asyncio
import gc
import os
import traceback
from asyncio import constants
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import pytest
import pytest_asyncio

from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.process_memory import configure_memory
from service.settings import Settings
from service.store import Store, opened
from tests.support.ejabberd import PrivateEjabberd
from tests.support.prosody import ProsodyWithStrangers
from tests.support.redis_cluster import RedisCluster

# Examples of property tests have no deadline, because the machine may be busy.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

# In debug mode asyncio records the stack at the creation of each future and handle, some sixty frames under pytest.
# That was two fifths of the tests' time; the innermost frames are enough. It also looks at their source files, although
# these do not change during the tests.
constants.DEBUG_STACK_DEPTH = 2  # type: ignore[misc]  # Final in typeshed
traceback.extract_stack.__defaults__ = (None, constants.DEBUG_STACK_DEPTH)


def _record_stack(
    frames: Iterable[tuple[FrameType, int]], *, limit: int | None = None, **_options: bool
) -> list[tuple[str, int, str, str | None]]:
    """Return file, line and function of each frame; whatever prints them adds the text of the line."""
    return [(frame.f_code.co_filename, line, frame.f_code.co_name, None) for frame, line in islice(frames, limit)]


traceback.StackSummary.extract = _record_stack  # type: ignore[assignment]  # returns what format_list accepts

configure_memory()

_accept = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]  # missing in typeshed


async def _accept_unless_closed(loop: BaseSelectorEventLoop, *args: Any) -> None:
    """Close a connection that arrived while its server was being closed. asyncio of Python 3.11 leaves it open."""
    _, connection, _, _, server, *_ = args
    if server.is_serving():
        await _accept(loop, *args)
    else:
        connection.close()


BaseSelectorEventLoop._accept_connection2 = _accept_unless_closed  # type: ignore[attr-defined]  # as above

# Nothing in these tests is signed by a public authority, and to load all of them takes 25 ms for each TLS context.
os.environ["SSL_CERT_FILE"] = os.devnull


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let two workers of pytest-xdist begin with the tests of the whole product, and the third with the experiments.

    Those of the whole product take longest and mostly wait, while the others use the processor. Each worker gets an
    equal part of the list. An idle worker takes tests from the end of another's part: if these are short ones, what a
    module shares, such as a product or the results of an experiment, is made only once.
    """
    whole, experiments, short = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        if item.get_closest_marker("e2e") or item.get_closest_marker("faults"):
            whole.append(item)
        else:
            (experiments if item.path.parent.name == "simulate" else short).append(item)
    half = len(whole) // 2
    while 0 < half < len(whole) and whole[half - 1].path == whole[half].path:
        half += 1
    part = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    between = max(0, part - half)
    items[:] = [*whole[:half], *short[:between], *whole[half:], *short[between:]]
    items[2 * part : 2 * part] = experiments


def pytest_collection_finish() -> None:
    """Exempt what collection has created from garbage collections, which otherwise look at all of it again."""
    gc.freeze()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a private Redis with data of other tests; most tests need ``clean_redis`` instead."""
    async with PrivateRedis(tmp_path_factory.mktemp("redis")) as redis:
        yield redis.url


@pytest_asyncio.fixture
async def clean_redis(redis_url: str) -> str:
    """The URL of a private Redis without data and scripts."""
    reader, writer = await asyncio.open_unix_connection(urlsplit(redis_url).path)
    writer.write(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
    assert [await reader.readline(), await reader.readline()] == [b"+OK\r\n"] * 2
    writer.close()
    await writer.wait_closed()
    return redis_url


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    """Settings with an empty store; some folders override this fixture."""
    return Settings(redis_url=clean_redis)


@pytest_asyncio.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """An open store with these settings."""
    async with opened(settings) as store:
        yield store


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisCluster]:
    """A private Redis Cluster of six nodes; tests that kill nodes must start their own."""
    async with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def clean_cluster(redis_cluster: RedisCluster) -> RedisCluster:
    """A private Redis Cluster without data."""
    await redis_cluster.clear()
    return redis_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def prosody(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateProsody]:
    """A private Prosody; tests must register accounts with unique names."""
    async with ProsodyWithStrangers(tmp_path_factory.mktemp("prosody")) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def ejabberd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateEjabberd]:
    """A private ejabberd; tests must register accounts with unique names."""
    async with PrivateEjabberd(tmp_path_factory.mktemp("ejabberd")) as server:
        yield server
