"""Decides which addresses and ports a socket may connect to, to prevent server-side request forgery.

- Connections to addresses that are not public are refused unless the operator allows their network (guarantee I6).
- Link-local addresses and the addresses of clouds' metadata services are refused unless the operator allows a network
  that consists only of such addresses.
- Loopback addresses are refused unless ``allow_private`` is set.
- Addresses that stand for others (NAT64, 6to4, Teredo) are always refused.
"""

# ``ipaddress.is_global`` alone permits multicast, NAT64, 6to4 and some special-purpose ranges (RFC 6890 and the IANA
# registries), so these are listed here.

import functools
import ipaddress
import socket
from collections.abc import Collection
from typing import NamedTuple

from service.errors import AddressRefused, PortRefused
from service.net.client_address import Network

DEFAULT_PORTS = frozenset({80, 443, 8080, 8443})
_MAX_CACHED_ADDRESSES = 1_000

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


_REFUSED = _networks(
    "192.0.0.0/24",  # IETF protocol assignments
    "192.88.99.0/24",  # 6to4 relays
    "168.63.129.16/32",  # a cloud's metadata service, on a public address
    "224.0.0.0/4",  # multicast
    "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4: any IPv4 address in disguise
    "3fff::/20",  # documentation
)
_NEVER_ALLOWED = _networks(
    "0.0.0.0/8",
    "127.0.0.0/8",  # services on this machine trust local clients
    "192.88.99.0/24",
    "224.0.0.0/3",  # multicast, reserved, broadcast
    "::/96",  # unspecified, loopback, IPv4-compatible
    "::ffff:0:0:0/96",  # IPv4-translated
    "64:ff9b::/96",  # NAT64
    "64:ff9b:1::/48",  # NAT64 for local use
    "2001::/32",  # Teredo
    "2002::/16",
    "ff00::/8",
)
_ALLOWED_EXPLICITLY = _networks(  # only by a network that lies within one of these
    "169.254.0.0/16",  # link-local, with the metadata service of most clouds
    "fe80::/10",
    "100.100.100.200/32",  # metadata services of other clouds
    "168.63.129.16/32",
    "192.0.0.192/32",
    "fd00:ec2::/32",
    "fd20:ce::254/128",
)


def check_allowed_network(network: Network) -> Network:
    """Return ``network`` unchanged if the operator can allow connections to it.

    Raises :class:`ValueError` for a network that can never be allowed. This applies to loopback, multicast, and
    addresses that stand for other addresses (for example NAT64).
    """
    if _contains(_NEVER_ALLOWED, network):
        raise ValueError(
            f"{network} cannot be allowed: it is loopback, multicast, or stands for other addresses. "
            "Give a service on this machine an address of your network."
        )
    return network


@functools.lru_cache(_MAX_CACHED_ADDRESSES)
def is_public(address: str) -> bool:
    """Return whether the IP address ``address`` is public. The address may have a scope id."""
    ip = _unmapped(address)
    is_unicast = ip.version == 4 or ip in _GLOBAL_UNICAST  # noqa: PLR2004 - the version of IP
    return is_unicast and ip.is_global and not any(ip in network for network in _REFUSED)


def is_internal(address: str) -> bool:
    """Return whether the IP address ``address`` is neither public nor loopback.

    The result is False for "", which stands for an unknown address.
    """
    return bool(address) and not is_public(address) and not _unmapped(address).is_loopback


def _is_allowed(address: str, allowed_networks: Collection[Network]) -> bool:
    """Return whether the operator allows connections to ``address``, which is not public.

    The address must be in one of ``allowed_networks``. There are two restrictions:

    - A link-local address, or the address of a cloud's metadata service, is allowed only by a network that contains
      no other kinds of addresses.
    - Some addresses, such as loopback and multicast, are never allowed.
    """
    ip = _unmapped(address)
    networks = [network for network in allowed_networks if ip in network]
    if not networks or any(ip in network for network in _NEVER_ALLOWED):
        return False
    special = [network for network in _ALLOWED_EXPLICITLY if ip in network]
    return not special or any(_contains(special, network) for network in networks)


def _contains(ranges: Collection[Network], network: Network) -> bool:
    """Return whether ``network`` lies entirely within one of ``ranges``."""
    return any(
        each.version == network.version and network.network_address in each and network.prefixlen >= each.prefixlen
        for each in ranges
    )


def _unmapped(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip


class SocketRefused(OSError):
    """Raised inside aiohttp's connector if the address guard refuses a connection to an address."""

    # The class is an ``OSError``, so that the connector then tries the next address of the host. All refusals have the
    # same text, so that the connector raises one of them unchanged if every address was refused.

    def __init__(self, error: AddressRefused) -> None:
        super().__init__("refused by the guard")
        self.error = error

    def as_error(self, host: str) -> AddressRefused:
        """Return the :class:`AddressRefused` error that tells the user why the request to ``host`` was refused."""
        if isinstance(self.error, PortRefused) or str(self.error).startswith(f"{host} "):
            return self.error
        return AddressRefused(f"{host}: {self.error}")


# (family, type, protocol, canonical name, address), as socket.getaddrinfo returns them.
AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


class AddressGuard(NamedTuple):
    """The addresses and ports to which an HTTP client may connect. Public addresses are always allowed.

    - ``allow_private`` allows loopback addresses on any port, but no other private addresses.
    - ``extra_ports`` are the ports that are allowed in addition to the default ports.
    - ``allowed_networks`` are private networks to which connections are also allowed, on the same ports as for public
      addresses.
    """

    allow_private: bool = False
    extra_ports: Collection[int] = ()
    allowed_networks: Collection[Network] = ()

    def refusal(self, address: str, port: int) -> AddressRefused | None:
        """Return the error that refuses a connection to this IP address and port; None if the connection is allowed.

        An IPv4-mapped IPv6 address is treated as the IPv4 address.
        """
        if self.allow_private and _unmapped(address).is_loopback:
            return None
        if not is_public(address) and not _is_allowed(address, self.allowed_networks):
            return AddressRefused(f"{address} is not a public address; only public ones are fetched from.")
        allowed_ports = DEFAULT_PORTS.union(self.extra_ports)
        if port not in allowed_ports:
            return PortRefused(
                "Port {port} is not one that feeds are fetched from ({ports}). Whoever runs this bot can allow it.",
                port=str(port),
                ports=", ".join(map(str, sorted(allowed_ports))),
            )
        return None

    def create_socket(self, info: AddressInfo) -> socket.socket:
        """Create a socket for the address ``info``, on behalf of aiohttp's connector.

        Raises :class:`SocketRefused` if the address or port is not allowed.
        """
        family, kind, protocol, _, address = info
        if error := self.refusal(str(address[0]), int(address[1])):
            raise SocketRefused(error)
        return socket.socket(family, kind, protocol)
