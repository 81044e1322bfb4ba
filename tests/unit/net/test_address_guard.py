"""Only public addresses and default ports are connected to."""

import socket

import pytest

from service.net.address_guard import AddressGuard, SocketRefused, is_public
from service.net.client_address import Network
from service.settings import SettingsInvalid, load

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"]
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"]
NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "10.1.2.3",
    "100.64.0.1",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


def is_refused(
    address: str,
    port: int = 443,
    *,
    allow_private: bool = False,
    extra_ports: tuple[int, ...] = (),
    allowed_networks: tuple[Network, ...] = (),
) -> str:
    return str(AddressGuard(allow_private, extra_ports, allowed_networks).refusal(address, port) or "")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(address)
    assert is_refused(address) == ""


@pytest.mark.parametrize("address", [*NOT_PUBLIC, *LOOPBACK])
def test_other_addresses_are_refused(address: str) -> None:
    assert not is_public(address)
    assert "not a public address" in is_refused(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_allow_private_allows_no_other_private_address(address: str) -> None:
    assert "not a public address" in is_refused(address, allow_private=True)


@pytest.mark.parametrize("address", LOOPBACK)
def test_allow_private_allows_loopback_on_any_port(address: str) -> None:
    assert is_refused(address, 6379, allow_private=True) == ""


@pytest.mark.parametrize("port", [0, 21, 22, 25, 6379, 8081, 65535])
def test_other_ports_are_refused_unless_added(port: int) -> None:
    assert f"Port {port}" in is_refused("8.8.8.8", port)
    assert f"Port {port}" in is_refused("8.8.8.8", port, allow_private=True)
    assert is_refused("8.8.8.8", port, extra_ports=(port,)) == ""


@pytest.mark.parametrize("port", [80, 443, 8080, 8443])
def test_default_ports_are_allowed(port: int) -> None:
    assert is_refused("8.8.8.8", port) == ""


def test_a_refused_address_gets_no_socket() -> None:
    with pytest.raises(SocketRefused) as caught:
        AddressGuard().create_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 443)))
    assert "localhost: 127.0.0.1 is not a public address" in str(caught.value.as_error("localhost"))
    assert str(caught.value.as_error("127.0.0.1")).startswith("127.0.0.1 is not a public address")


def test_an_allowed_address_gets_a_socket_of_its_family() -> None:
    with AddressGuard().create_socket(
        (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("2606:4700::1111", 443, 0, 0))
    ) as made:
        assert made.family == socket.AF_INET6


def networks(*texts: str) -> tuple[Network, ...]:
    return load({}, allowed_networks=texts).allowed_networks


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.168.1.7", "192.168.1.0/24"),
        ("192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.7", "192.168.0.0/16"),
        ("fd12::7", "fd12::/16"),
        ("100.64.0.1", "100.64.0.0/10"),
        ("169.254.169.254", "169.254.169.254"),
        ("169.254.1.1", "169.254.0.0/16"),
        ("fe80::1%2", "fe80::/64"),
        ("10.1.2.3", "0.0.0.0/0"),
    ],
)
def test_a_network_of_the_operator_is_allowed_on_the_usual_ports(address: str, network: str) -> None:
    assert is_refused(address, allowed_networks=networks(network)) == ""
    assert "Port 6379" in is_refused(address, 6379, allowed_networks=networks(network))
    assert is_refused(address, 6379, allowed_networks=networks(network), extra_ports=(6379,)) == ""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",  # noqa: S104 - an address to refuse
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::a00:1",
        "2002:a9fe:a9fe::1",
        "2001:0:1::1",
        "::7f00:1",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
    ],
)
def test_loopback_metadata_and_mapped_addresses_are_refused_in_any_allowed_network(address: str) -> None:
    everything = networks("0.0.0.0/0", "::/0", "169.0.0.0/8", "168.63.0.0/16", "100.64.0.0/10", "fd00::/8", "fe00::/8")
    assert "not a public address" in is_refused(address, allowed_networks=everything)


@pytest.mark.parametrize("network", ["127.0.0.0/8", "127.0.0.1", "::1", "224.0.0.0/4", "64:ff9b::/96", "2002::/16"])
def test_a_network_that_cannot_be_allowed_is_an_invalid_setting(network: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"allowed_networks.*cannot be allowed"):
        networks("10.0.0.0/8", network)
