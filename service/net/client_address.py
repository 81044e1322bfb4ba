"""The client of an HTTP request: its address and scheme, also behind proxies that are trusted. Pure.

A proxy appends the address of its own peer to ``X-Forwarded-For``, or to ``Forwarded`` (RFC 7239). Both headers are
read only if the peer of our connection is a trusted proxy, from right to left: the first address that is not a
trusted proxy's is the client's. Everything further left was written by the client and is ignored.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from service.errors import UserError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_IPV6_CUSTOMER_BITS = 64


class ForwardingUnclear(UserError, code="forwarding-unclear"):
    """The two forwarding headers of one request name different clients."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request. ``address`` is "" if a trusted proxy does not name it.

    ``is_through_stranger``: the client itself sent a forwarding header. So it may be a proxy that is not trusted, and
    the address not the one of who asks.
    """

    address: str
    is_secure: bool
    is_through_stranger: bool = False


def find_client(
    peer: str,
    forwarded: Sequence[Mapping[str, str]],
    x_forwarded_for: Iterable[str],
    x_forwarded_proto: Iterable[str],
    trusted: Iterable[Network],
) -> Client:
    """Return the client of a request over plain HTTP whose connection comes from the address ``peer``.

    ``forwarded`` are the parsed elements of ``Forwarded``, the two others the values of all headers of that name.
    Raises :class:`ForwardingUnclear`: a proxy that writes one header passes the other on as the client sent it.
    """
    trusted = tuple(trusted)
    hops = [hop for header in x_forwarded_for for hop in header.split(",")]
    if not is_in_networks(peer, trusted):
        return Client(peer, is_secure=False, is_through_stranger=bool(forwarded or hops))
    protos = [proto.strip().lower() for header in x_forwarded_proto for proto in header.split(",")]
    address, place = _address_of(hops, peer, trusted)
    by_x = Client(address, protos[-1:] == ["https"], is_through_stranger=place > 0)
    if not forwarded:
        return by_x
    address, place = _address_of([element.get("for", "") for element in forwarded], peer, trusted)
    is_secure = forwarded[place].get("proto", "").lower() == "https"
    by_forwarded = Client(address, is_secure, is_through_stranger=place > 0)
    if hops and by_x.address != by_forwarded.address:
        raise ForwardingUnclear(
            "The headers Forwarded and X-Forwarded-For name different clients. "
            "Have the proxy remove the one that it does not write."
        )
    return by_forwarded


def is_in_networks(address: str, networks: Iterable[Network]) -> bool:
    """Return whether an address lies in one of these networks; "" and what is no address lie in none."""
    ip = _parse(address)
    return ip is not None and any(ip in network for network in networks)


def network_of(address: str) -> str:
    """Return what an address is counted as: an IPv6 address as its /64, of which one customer has all addresses."""
    ip = _parse(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, _IPV6_CUSTOMER_BITS), strict=False))
    return str(ip or "")


def _address_of(hops: Sequence[str], peer: str, trusted: Sequence[Network]) -> tuple[str, int]:
    """Return the address of the client and its place among the hops; the peer's if there are no hops."""
    address, place = peer, -1
    for place in reversed(range(len(hops))):
        ip = _parse(_without_port(hops[place].strip()))
        address = str(ip or "")
        if not is_in_networks(address, trusted):
            break
    return address, place


def _without_port(node: str) -> str:
    """Return the address of ``192.0.2.1:80``, ``[2001:db8::1]:80`` or ``[2001:db8::1]``, or of an address itself."""
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip
