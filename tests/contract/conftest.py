"""A store on a real Redis that is emptied before each test; in the extended run also on a Redis Cluster."""

import pytest

from service.settings import Settings
from tests.support.redis_cluster import RedisCluster


@pytest.fixture(params=["one", pytest.param("cluster", marks=pytest.mark.storms)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty Redis, and in the extended run also of an empty cluster."""
    if request.param == "one":
        return str(request.getfixturevalue("clean_redis"))
    cluster: RedisCluster = request.getfixturevalue("clean_cluster")
    return cluster.urls


@pytest.fixture
def settings(store_url: str) -> Settings:
    return Settings(redis_url=store_url)
