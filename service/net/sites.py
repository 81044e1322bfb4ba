"""Who is asked, as budgets see it: a site, however many hosts it has, and the network that answers for it."""

import ipaddress
from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList

_SITES_KEPT = 10_000
_IPV4_GROUP_BITS = 24
_IPV6_GROUP_BITS = 48


@lru_cache(_SITES_KEPT)
def site_of(host: str) -> str:
    """Return the registrable domain of a canonical URL's host; an address, or a name without one, is its own."""
    host = host.strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return str(_suffixes().privatesuffix(host) or host)


def site_of_jid(jid: str) -> str:
    """Return the registrable domain of the server of a JID, bare or full."""
    return site_of(jid.partition("/")[0].rpartition("@")[2])


def host_and_parent_domains(host: str) -> list[str]:
    """Return a canonical URL's host and the domains that it is of, down to its site: what can stand for it in lists."""
    host, site = host.strip("[]"), site_of(host)
    names = [host]
    while names[-1].endswith(f".{site}"):
        names.append(names[-1].partition(".")[2])
    return names


def address_group(address: str) -> str:
    """Return the network that a peer's address (text) is taken to share with its neighbours: IPv4 /24, IPv6 /48."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    bits = _IPV4_GROUP_BITS if ip.version == 4 else _IPV6_GROUP_BITS  # noqa: PLR2004 - the version of IP
    return str(ipaddress.ip_network((ip, bits), strict=False))


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()
