"""The store on a real Redis that holds nothing at the start of each test; in storms on a Redis Cluster as well."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.settings import Settings
from service.store import Store, connect
from tests.support.redis_cluster import RedisCluster


@pytest.fixture(params=["one", pytest.param("cluster", marks=pytest.mark.storms)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a Redis, and in storms of a cluster, that holds nothing."""
    if request.param == "one":
        return str(request.getfixturevalue("clean_redis"))
    cluster: RedisCluster = request.getfixturevalue("clean_cluster")
    return cluster.urls


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await connect(Settings(redis_url=store_url))
    try:
        yield opened
    finally:
        await opened.close()
