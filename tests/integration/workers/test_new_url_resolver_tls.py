"""A feed with equal http and https URLs is one channel, the https one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from service.settings import Settings
from service.store import open_store
from tests.support.channels import count_channels
from tests.support.internet import Internet, Zone, internet
from tests.support.netns import CORONET, Namespace, namespace
from tests.support.waiting import until

ZONE: Zone = {"public.example": [["93.184.216.34"]], "unproved.example": [["93.184.216.35"]]}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Namespace]:
    with namespace(tmp_path) as made:
        yield made


@pytest.fixture
def world(place: Namespace, tmp_path: Path) -> Iterator[Internet]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("public.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with internet(place, ZONE, tmp_path, tmp_path / "server.pem") as running:
        yield running


async def test_an_http_feed_resolves_to_its_https_url_if_both_are_equal(
    place: Namespace, world: Internet, clean_redis: str, tmp_path: Path
) -> None:
    store = open_store(Settings(redis_url=clean_redis))
    trusted = {"CORONET_REDIS_URL": clean_redis, "SSL_CERT_FILE": str(tmp_path / "authority.pem")}

    async def followed_for(url: str) -> str:
        channel = (await store.worker_requests.probe(url)).channel
        assert channel is not None
        return channel.url

    try:
        with place.running(CORONET, "worker", **trusted):
            await until(store.ring.nodes, "the worker joins the ring")
            assert await followed_for("http://public.example/feed") == "https://public.example/feed"
            assert [each.port for each in world.seen() if each.path] == [80, 443]
            # Another feed, a port of its own, a certificate that proves nothing: each stays what was asked for.
            for url in ("http://public.example/other", "http://public.example:8080/feed", "http://unproved.example/"):
                assert await followed_for(url) == url
            assert await count_channels(store) == 4
    finally:
        await store.close()
