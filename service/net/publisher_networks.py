"""The network of a publisher's address, by which requests to publishers are counted: a /24 of IPv4, a /48 of IPv6."""

import ipaddress

_IPV4_GROUP_BITS = 24
_IPV6_GROUP_BITS = 48


def address_group(address: str) -> str:
    """Return the network by which requests to an IP address are counted: its /24 (IPv4) or its /48 (IPv6)."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    bits = _IPV4_GROUP_BITS if ip.version == 4 else _IPV6_GROUP_BITS  # noqa: PLR2004 - the version of IP
    return str(ipaddress.ip_network((ip, bits), strict=False))
