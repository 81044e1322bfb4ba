"""Determines the address and scheme of an HTTP request's client, which may be behind trusted proxies.

A proxy appends the address of the client that connected to it to ``X-Forwarded-For`` or ``Forwarded`` (RFC 7239). These
headers are used only if the connection comes from a trusted proxy. They are read from right to left: the first address
that does not belong to a trusted proxy is the client's. Addresses to the left of it may be forged and are ignored.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from service.errors import UserError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_IPV6_CUSTOMER_BITS = 64


class ForwardingConflict(UserError, code="forwarding-unclear"):
    """Raised if a request's ``Forwarded`` and ``X-Forwarded-For`` headers name different clients."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a request.

    - ``address`` is its IP address; "" if a trusted proxy does not state it.
    - ``is_secure`` is true if the client uses HTTPS.
    - ``has_forwarding_header`` is true if the client itself sent a forwarding header. The client may then be an
      untrusted proxy, and ``address`` the address of that proxy.
    """

    address: str
    is_secure: bool
    has_forwarding_header: bool = False


def find_client(
    peer: str,
    forwarded: Sequence[Mapping[str, str]],
    x_forwarded_for: Iterable[str],
    x_forwarded_proto: Iterable[str],
    trusted: Iterable[Network],
) -> Client:
    """Return the client of a plain HTTP request that arrived on a connection from the address ``peer``.

    - ``forwarded`` are the parsed elements of the ``Forwarded`` headers.
    - ``x_forwarded_for`` and ``x_forwarded_proto`` are the values of all headers with these names.
    - ``trusted`` are the networks of trusted proxies.

    Raises :class:`ForwardingConflict` if ``Forwarded`` and ``X-Forwarded-For`` name different clients.
    """
    # This happens if a proxy writes one of the headers and passes on the client's other header.
    trusted = tuple(trusted)
    hops = [hop for header in x_forwarded_for for hop in header.split(",")]
    if not is_in_networks(peer, trusted):
        return Client(peer, is_secure=False, has_forwarding_header=bool(forwarded or hops))
    protos = [proto.strip().lower() for header in x_forwarded_proto for proto in header.split(",")]
    address, index = _address_of(hops, peer, trusted)
    by_x = Client(address, protos[-1:] == ["https"], has_forwarding_header=index > 0)
    if not forwarded:
        return by_x
    address, index = _address_of([element.get("for", "") for element in forwarded], peer, trusted)
    is_secure = forwarded[index].get("proto", "").lower() == "https"
    by_forwarded = Client(address, is_secure, has_forwarding_header=index > 0)
    if hops and by_x.address != by_forwarded.address:
        raise ForwardingConflict(
            "The headers Forwarded and X-Forwarded-For name different clients. "
            "Have the proxy remove the one that it does not write."
        )
    return by_forwarded


def is_in_networks(address: str, networks: Iterable[Network]) -> bool:
    """Return whether ``address`` is in one of ``networks``; False if the address is "" or invalid."""
    ip = _parse(address)
    return ip is not None and any(ip in network for network in networks)


def network_of(address: str) -> str:
    """Return the network by which the connections of a client are counted; "" if ``address`` is invalid.

    For IPv4 this is the address itself. For IPv6 it is the /64 network of the address, which belongs to one customer.
    """
    ip = _parse(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, _IPV6_CUSTOMER_BITS), strict=False))
    return str(ip or "")


def _address_of(hops: Sequence[str], peer: str, trusted: Sequence[Network]) -> tuple[str, int]:
    """Return (address, index): the client's address, and its index in ``hops``.

    - ``hops`` are the addresses in a forwarding header. Each proxy has appended the address of the client or proxy
      that connected to it.
    - ``peer`` is the address that has connected to this server. If ``hops`` is empty, the result is (``peer``, -1).
    - ``trusted`` are the networks of trusted proxies.

    The client's address is the last one in ``hops`` that does not belong to a trusted proxy. If all belong to trusted
    proxies, it is the first one. The address is "" if it is not a valid IP address.
    """
    address, index = peer, -1
    for index in reversed(range(len(hops))):
        ip = _parse(_without_port(hops[index].strip()))
        address = str(ip or "")
        if not is_in_networks(address, trusted):
            break
    return address, index


def _without_port(node: str) -> str:
    """Remove the port and the brackets, if any, from the address in ``node``.

    Examples of ``node`` are ``192.0.2.1:80``, ``[2001:db8::1]:80``, ``[2001:db8::1]`` and ``192.0.2.1``.
    """
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip
