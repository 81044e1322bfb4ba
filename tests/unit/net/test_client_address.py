"""The client of a request behind trusted and untrusted proxies."""

from collections.abc import Mapping
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.net.client_address import Client, ForwardingConflict, find_client, is_in_networks, network_of

_PROXIES = tuple(map(ip_network, ("10.0.0.0/8", "2001:db8:aaaa::/48")))
_EVE = "203.0.113.66"


def _address(
    peer: str, x_forwarded_for: str | tuple[str, ...] = (), forwarded: tuple[Mapping[str, str], ...] = ()
) -> str:
    headers = (x_forwarded_for,) if isinstance(x_forwarded_for, str) else x_forwarded_for
    return find_client(peer, forwarded, headers, (), _PROXIES).address


@pytest.mark.parametrize(
    ("peer", "header", "address"),
    [
        (_EVE, "192.0.2.1", _EVE),  # no proxy of ours: not believed
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "198.51.100.1, 192.0.2.1", "192.0.2.1"),  # the client wrote the left one
        ("10.0.0.1", "198.51.100.1, 192.0.2.1, 10.0.0.2", "192.0.2.1"),  # two proxies in a row
        ("10.0.0.1", ("198.51.100.1", "192.0.2.1,10.0.0.2"), "192.0.2.1"),  # two headers
        ("10.0.0.1", "10.0.0.9, 10.0.0.2", "10.0.0.9"),  # a client in the proxies' own network
        ("10.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("2001:db8:aaaa::1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1, unknown", ""),
        ("10.0.0.1", "192.0.2.1, ", ""),
    ],
)
def test_the_client_is_the_first_untrusted_address_from_the_right(
    peer: str, header: str | tuple[str, ...], address: str
) -> None:
    assert _address(peer, header) == address


@pytest.mark.parametrize(
    ("elements", "address"),
    [
        (({"for": "192.0.2.1"},), "192.0.2.1"),
        (({"for": "192.0.2.9"}, {"for": "[2001:db8::1]:80"}, {"for": "10.0.0.2"}), "2001:db8::1"),
        (({"for": "192.0.2.1"}, {"for": "_hidden"}), ""),
        (({"for": "192.0.2.1"}, {"proto": "https"}), ""),
    ],
)
def test_the_forwarded_header_is_evaluated_like_x_forwarded_for(
    elements: tuple[Mapping[str, str], ...], address: str
) -> None:
    assert _address("10.0.0.1", forwarded=elements) == address
    assert _address(_EVE, forwarded=elements) == _EVE


def test_contradicting_headers_are_refused() -> None:
    assert _address("10.0.0.1", "192.0.2.1", ({"for": "192.0.2.1"},)) == "192.0.2.1"
    with pytest.raises(ForwardingConflict):
        _address("10.0.0.1", "192.0.2.1", ({"for": "198.51.100.1"},))


@pytest.mark.parametrize(
    ("peer", "forwarded", "proto", "is_secure"),
    [
        ("10.0.0.1", (), ("https",), True),
        ("10.0.0.1", (), ("https, http",), False),
        ("10.0.0.1", ({"for": "192.0.2.1", "proto": "https"},), (), True),
        ("10.0.0.1", ({"for": "192.0.2.9", "proto": "https"}, {"for": "192.0.2.1", "proto": "http"}), (), False),
        (_EVE, ({"for": "192.0.2.1", "proto": "https"},), ("https",), False),
    ],
)
def test_only_a_trusted_proxy_can_state_https(
    peer: str, forwarded: tuple[Mapping[str, str], ...], proto: tuple[str, ...], *, is_secure: bool
) -> None:
    assert find_client(peer, forwarded, (), proto, _PROXIES).is_secure is is_secure


def test_a_forwarding_header_of_the_client_is_recorded() -> None:
    assert find_client("127.0.0.1", (), ("192.0.2.1",), (), ()) == Client(
        "127.0.0.1", False, has_forwarding_header=True
    )
    assert find_client("10.0.0.1", (), ("192.0.2.1, 192.168.0.1",), (), _PROXIES).has_forwarding_header
    assert find_client("10.0.0.1", ({"for": "x"}, {"for": "192.168.0.1"}), (), (), _PROXIES).has_forwarding_header
    assert not find_client("10.0.0.1", (), ("192.0.2.1",), (), _PROXIES).has_forwarding_header
    assert not find_client("10.0.0.1", (), ("192.0.2.1, 10.0.0.2",), (), _PROXIES).has_forwarding_header


@given(st.text(), st.lists(st.text(), max_size=4))
def test_the_address_appended_by_the_proxy_counts(peer: str, written: list[str]) -> None:
    assert _address("10.0.0.1", (*written, _EVE)) == _EVE
    assert _address("10.0.0.1", ",".join([*written, _EVE])) == _EVE
    assert _address("10.0.0.1", (), (*({"for": each} for each in written), {"for": _EVE})) == _EVE
    assert not is_in_networks(peer, _PROXIES) or _address(peer, _EVE) == _EVE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("", "no address", True),
    ],
)
def test_ipv6_addresses_are_grouped_by_64_bit_prefix(one: str, other: str, *, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
