"""A store on a real Redis that is emptied before each test; in storms, on a Redis Cluster as well."""

import pytest

from service.settings import Settings
from tests.support.redis_cluster import RedisCluster


@pytest.fixture(params=["one", pytest.param("cluster", marks=pytest.mark.storms)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a Redis, and in storms of a cluster, that holds nothing."""
    if request.param == "one":
        return str(request.getfixturevalue("clean_redis"))
    cluster: RedisCluster = request.getfixturevalue("clean_cluster")
    return cluster.urls


@pytest.fixture
def settings(store_url: str) -> Settings:
    return Settings(redis_url=store_url)
