"""The address guard in production settings, on a machine where all addresses accept connections (guarantee I6).

However a URL is written, named or redirected to, no connection is made to a private address.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from service.errors import AddressRefused
from service.net.address_guard import DEFAULT_PORTS
from service.settings import Settings
from service.store import open_store
from tests.support.fetcher_process import FetcherProcess, run_fetcher
from tests.support.internet import Internet, Zone, internet
from tests.support.netns import CORONET, UNREACHABLE, Namespace, namespace
from tests.support.waiting import until

PUBLIC, PUBLIC6 = "93.184.216.34", "2606:4700::1111"

FORBIDDEN = (
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:a00:1::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
)

NAMES = {f"n{number}.private.example": address for number, address in enumerate(FORBIDDEN)}

ZONE: Zone = {
    "public.example": [[PUBLIC]],
    "public6.example": [[PUBLIC6]],
    "rebound.example": [[PUBLIC], ["127.0.0.1"], ["10.0.0.1"]],
    "both.example": [[PUBLIC, "10.0.0.1", "::1"], ["10.0.0.1", "fd00::1", PUBLIC]],
    "fallback.example": [[UNREACHABLE, "10.0.0.1", "127.0.0.1", "fd00::1"]],
    **{name: [[address]] for name, address in NAMES.items()},
}

DISGUISES = (
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://0177.0.0.01/",
    "http://0/",
    "http://0xa9fea9fe/latest/meta-data/",
    "http://169.254.43518/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/",
    "http://127.0.0.1./",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://x.localhost/",
    "http://localhost.localdomain/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/",
    "http://[::1%25lo]/",
    "http://[fe80::1%lo]/",
    f"http://{PUBLIC}@10.0.0.1/",
    f"http://{PUBLIC}:80@10.0.0.1/",
    f"http://{PUBLIC}\\@10.0.0.1/",
    f"http://10.0.0.1\\@{PUBLIC}/",
    f"http://{PUBLIC}%00@10.0.0.1/",
    f"http://10.0.0.1%00.{PUBLIC}/",
    "http://10.0.0.1%2f@public.example/",
    f"http://{PUBLIC}#@10.0.0.1/\r\nHost: 10.0.0.1",
    "http://public.example%0d%0a@10.0.0.1/",
    "http:10.0.0.1/",
    "http:////10.0.0.1/",
    "//10.0.0.1/",
    "10.0.0.1",
    f"http://{PUBLIC}:22/",
    f"http://{PUBLIC}:25/",
    f"http://{PUBLIC}:6379/",
    f"https://[{PUBLIC6}]:6379/",
    "http://10.0.0.1:8080/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://10.0.0.1/",
    "unix:/run/redis.sock",
    "data:text/xml,<rss/>",
)

# As targets of redirects these are paths, or end where their header does.
LEADS_BACK = ("http:10.0.0.1/", "http:////10.0.0.1/", "10.0.0.1", f"http://{PUBLIC}#@10.0.0.1/\r\nHost: 10.0.0.1")

LITERALS = tuple(f"http://[{address}]/" if ":" in address else f"http://{address}/" for address in FORBIDDEN)
NAMED = tuple(f"http://{name}/" for name in NAMES)
NOWHERE = {"address-refused", "port-refused", "bad-url", "bad-redirect", "host-not-found", "unreachable"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with namespace(tmp_path_factory.mktemp("namespace")) as made:
        yield made


@pytest.fixture(scope="module")
def world(place: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """A simulated Internet in which every address responds; otherwise a failed connection would prove nothing."""
    deaf = {"224.0.0.1", "255.255.255.255", "fe80::1", "ff02::1"}
    greet = "import socket, sys; [socket.create_connection((address, 22)).close() for address in sys.argv[1:]]"
    with internet(place, ZONE, tmp_path_factory.mktemp("internet")) as running:
        subprocess.run(place.command(sys.executable, "-c", greet, *(set(FORBIDDEN) - deaf)), check=True)
        while len(running.seen()) < len(set(FORBIDDEN) - deaf):
            time.sleep(0.01)
        yield running


@pytest.fixture(scope="module")
def client(place: Namespace, world: Internet) -> Iterator[FetcherProcess]:  # noqa: ARG001 - it asks the world's name server
    with run_fetcher(place) as running:
        yield running


@pytest.fixture(autouse=True)
def _only_public_addresses_are_connected_to(client: FetcherProcess, world: Internet) -> Iterator[None]:
    before = len(world.seen())
    yield
    # After this response, all earlier connections have been recorded.
    assert client.ask("http://public.example/end") == ("200", "")
    reached = {(each.address, each.port) for each in world.seen()[before:]}
    assert reached <= {(address, port) for address in (PUBLIC, PUBLIC6) for port in DEFAULT_PORTS}


@pytest.mark.parametrize("host", ["public.example", "public6.example", PUBLIC, f"[{PUBLIC6}]", "public.example:8080"])
def test_public_hosts_are_reached(client: FetcherProcess, world: Internet, host: str) -> None:
    before = len(world.seen())
    assert client.ask(f"http://{host}/feed") == ("200", "")
    assert [each.path for each in world.seen()[before:]][-1] == "/feed"


@pytest.mark.parametrize("url", LITERALS)
def test_other_hosts_are_refused_by_their_address(client: FetcherProcess, url: str) -> None:
    code, words = client.ask(url)
    assert code == "address-refused"
    assert "is not a public address" in words


@pytest.mark.parametrize("url", NAMED)
def test_a_host_name_is_refused_like_its_address(client: FetcherProcess, url: str) -> None:
    code, words = client.ask(url)
    assert code == "address-refused"
    assert "is not a public address" in words


@pytest.mark.parametrize("url", DISGUISES)
def test_disguised_addresses_ports_and_schemes_are_refused(client: FetcherProcess, url: str) -> None:
    assert client.ask(url)[0] in NOWHERE


@pytest.mark.parametrize("target", [*LITERALS, *NAMED, *sorted({*DISGUISES} - {*LEADS_BACK})])
def test_redirects_to_refused_addresses_are_refused(client: FetcherProcess, target: str) -> None:
    code, _ = client.ask(f"http://public.example/to?{quote(target, safe='')}")
    assert code in NOWHERE


@pytest.mark.parametrize("target", LEADS_BACK)
def test_a_relative_redirect_stays_on_its_host(client: FetcherProcess, target: str) -> None:
    assert client.ask(f"http://public.example/to?{quote(target, safe='')}") == ("200", "")


def test_dns_rebinding_is_refused(client: FetcherProcess) -> None:
    codes = [client.ask(f"http://rebound.example:{port}/")[0] for port in (80, 8080, 8443)]
    assert codes == ["200", "address-refused", "address-refused"]


def test_only_the_public_addresses_of_a_name_are_used(client: FetcherProcess) -> None:
    assert {client.ask("http://both.example/")[0] for _ in range(4)} == {"200"}


def test_private_addresses_are_refused_if_the_public_one_fails(client: FetcherProcess) -> None:
    assert client.ask("http://fallback.example/")[0] in {"unreachable", "address-refused"}


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("http://public.example/feed", 0, "public.example"),
        ("http://169.254.169.254/latest/meta-data/", 1, "169.254.169.254 is not a public address"),
        ("http://n1.private.example/", 1, "n1.private.example: 10.0.0.1 is not a public address"),
        (f"http://public.example/to?{quote('http://0x7f.1:6379/', safe='')}", 1, "127.0.0.1 is not a public address"),
    ],
)
@pytest.mark.usefixtures("world")
def test_the_guard_applies_to_coronet_inspect(place: Namespace, url: str, status: int, words: str) -> None:
    done = subprocess.run(place.command(CORONET, "inspect", url), capture_output=True, text=True, check=False)
    assert (done.returncode, words in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr


@pytest.mark.usefixtures("world")
async def test_the_guard_applies_to_probes_of_workers(place: Namespace, clean_redis: str) -> None:
    store = open_store(Settings(redis_url=clean_redis))
    try:
        with place.running(CORONET, "worker", CORONET_REDIS_URL=clean_redis):
            await until(store.ring.nodes, "the worker joins the ring")
            for url in (
                "http://n1.private.example/",
                "http://[::1]/",
                f"http://public.example/to?{quote(LITERALS[3])}",
            ):
                with pytest.raises(AddressRefused, match="is not a public address"):
                    await store.worker_requests.probe(url)
            assert (await store.worker_requests.probe("http://public.example/feed")).channel is not None
    finally:
        await store.close()
