"""The operator's own networks, on a machine where all addresses accept connections (guarantee I6)."""

import subprocess
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pytest

from service.discovery.channel_visibility import is_public
from service.errors import AddressRefused
from service.settings import Settings
from service.store import open_store
from tests.support.fetcher_process import FetcherProcess, run_fetcher
from tests.support.internet import Internet, Zone, internet
from tests.support.netns import CORONET, Namespace, namespace
from tests.support.waiting import until

PUBLIC, METADATA = "93.184.216.34", "169.254.169.254"
ALLOWED = "10.0.0.0/8,fd00::/8,169.0.0.0/8"
ZONE: Zone = {
    "public.example": [[PUBLIC]],
    "nas.example": [["10.0.0.7"]],
    "rebound.example": [[PUBLIC], ["10.0.0.7"]],
    "sly.example": [[PUBLIC], [METADATA], ["127.0.0.1"]],
    "both.example": [["10.0.0.7", PUBLIC]],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with namespace(tmp_path_factory.mktemp("namespace")) as made:
        yield made


@pytest.fixture(scope="module")
def world(place: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with internet(place, ZONE, tmp_path_factory.mktemp("internet")) as running:
        yield running


@pytest.fixture
def client(place: Namespace, world: Internet) -> Iterator[FetcherProcess]:  # noqa: ARG001 - it asks the world's name server
    with run_fetcher(place, f"CORONET_ALLOWED_NETWORKS={ALLOWED}") as running:
        yield running


def through(target: str, host: str = "public.example") -> str:
    return f"http://{host}/to?{quote(target, safe='')}"


def test_allowed_networks_are_reached_and_no_others(client: FetcherProcess, world: Internet) -> None:
    before = len(world.seen())
    for host in ("10.0.0.7", "[fd12::7]", "nas.example", "10.0.0.7:8080", "[::ffff:10.0.0.7]", "public.example"):
        assert client.ask(f"http://{host}/feed") == ("200", ""), host
    for host in ("192.168.1.7", "127.0.0.1", METADATA, "[fd00:ec2::254]", "[64:ff9b::a00:7]"):
        assert client.ask(f"http://{host}/feed")[0] == "address-refused", host
    assert client.ask("http://10.0.0.7:6379/feed")[0] == "port-refused"
    assert {each.address for each in world.seen()[before:]} == {"10.0.0.7", "fd12::7", PUBLIC}


def test_only_addresses_in_allowed_networks_can_redirect_into_them(client: FetcherProcess, world: Internet) -> None:
    assert client.ask(through("http://10.0.0.8/feed", "nas.example")) == ("200", "")
    assert client.ask(through("http://public.example/feed", "nas.example")) == ("200", "")
    before = len(world.seen())
    assert client.ask(through("http://10.0.0.8/feed"))[0] == "address-refused"
    assert client.ask(through("http://nas.example/feed"))[0] == "address-refused"
    assert client.ask(through(through("http://10.0.0.8/"), "nas.example"))[0] == "address-refused"
    assert client.ask(through(f"http://{METADATA}/", "nas.example"))[0] == "address-refused"
    assert {each.address for each in world.seen()[before:]} == {PUBLIC, "10.0.0.7"}


def test_a_public_name_that_is_rebound_into_an_allowed_network_is_refused(
    client: FetcherProcess, world: Internet
) -> None:
    before = len(world.seen())
    answers = [client.ask(f"http://rebound.example:{port}/", public_only=True)[0] for port in (80, 8080)]
    assert answers == ["200", "address-refused"]
    assert [client.ask(f"http://sly.example:{port}/")[0] for port in (80, 8080, 8443)] == [
        "200",
        "address-refused",
        "address-refused",
    ]
    assert client.ask("http://both.example/", public_only=True)[0] == "200"
    assert {each.address for each in world.seen()[before:]} == {PUBLIC}


def test_a_connection_into_an_allowed_network_is_not_reused_for_public_fetches(
    client: FetcherProcess, world: Internet
) -> None:
    assert client.ask("http://nas.example/feed") == ("200", "")
    before = len(world.seen())
    assert client.ask("http://nas.example/feed", public_only=True)[0] == "address-refused"
    assert client.ask("http://public.example/feed") == ("200", "")
    assert {each.address for each in world.seen()[before:]} == {PUBLIC}


@pytest.mark.usefixtures("world")
def test_coronet_inspect_reads_an_allowed_network(place: Namespace) -> None:
    for networks, status in (("", 1), (ALLOWED, 0)):
        variable = f"CORONET_ALLOWED_NETWORKS={networks}"
        command = place.command("env", variable, CORONET, "inspect", "http://nas.example/feed")
        assert subprocess.run(command, capture_output=True, check=False).returncode == status


@pytest.mark.usefixtures("world")
async def test_a_channel_in_an_allowed_network_is_never_public(place: Namespace, clean_redis: str) -> None:
    store = open_store(Settings(redis_url=clean_redis))
    settings = {"CORONET_REDIS_URL": clean_redis, "CORONET_ALLOWED_NETWORKS": ALLOWED}
    try:
        with place.running(CORONET, "worker", **settings):
            await until(store.ring.nodes, "the worker joins the ring")
            for url in ("http://nas.example/feed", through("http://public.example/feed", "nas.example")):
                channel = (await store.worker_requests.probe(url)).channel
                assert channel is not None
                assert channel.private
                assert not is_public(msgspec.structs.replace(channel, listed=True), 1000, 3)
            with pytest.raises(AddressRefused):
                await store.worker_requests.probe(through("http://nas.example/feed"))
            public = (await store.worker_requests.probe("http://public.example/feed")).channel
            assert public is not None
            assert is_public(public, 3, 3)
    finally:
        await store.close()
