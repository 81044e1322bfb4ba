"""Sites and networks: the groups by which hosts, users and publishers are blocked, limited and counted.

- A site is a registrable domain (such as ``example.co.uk``) with all its hosts.
- The site of a user is the site of the server in the user's JID.
- The network of an IP address is its /24 (IPv4) or its /48 (IPv6).
"""

import ipaddress
from functools import cache, lru_cache

import idna
from publicsuffixlist import PublicSuffixList

_MAX_CACHED_SITES = 2_000
_suffixes = cache(PublicSuffixList)


@lru_cache(_MAX_CACHED_SITES)
def site_of(host: str) -> str:
    """Return the site (registrable domain) of ``host``, the host of a canonical URL.

    The site of an IP address, or of a name without a registrable domain, is the host itself.
    """
    host = host.strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return str(_suffixes().privatesuffix(host) or host)


def host_and_parent_domains(host: str) -> list[str]:
    """Return the host of a canonical URL, followed by its parent domains up to the registrable domain.

    A block or rule that names one of these domains applies to the host.
    """
    host, site = host.strip("[]"), site_of(host)
    names = [host]
    while names[-1].endswith(f".{site}"):
        names.append(names[-1].partition(".")[2])
    return names


def site_of_jid(jid: str) -> str:
    """Return the site (registrable domain) of the server in a bare or full JID."""
    return site_of(jid.partition("/")[0].rpartition("@")[2])


def domain_of_jid(jid: str) -> str:
    """Return the domain of a bare or full JID as in canonical URLs: in lower case and encoded in ASCII (IDNA).

    The result is "" if the domain cannot be encoded in IDNA.
    """
    domain = jid.partition("/")[0].rpartition("@")[2].removesuffix(".")  # RFC 7622 §3.2
    try:
        return domain.lower() if domain.isascii() else idna.encode(domain, uts46=True).decode()
    except UnicodeError:  # also idna.IDNAError
        return ""


_IPV4_GROUP_BITS = 24
_IPV6_GROUP_BITS = 48


def address_group(address: str) -> str:
    """Return the network to which an IP address belongs: its /24 (IPv4) or its /48 (IPv6).

    Requests to all addresses of a network are counted together.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    bits = _IPV4_GROUP_BITS if ip.version == 4 else _IPV6_GROUP_BITS  # noqa: PLR2004 - the version of IP
    return str(ipaddress.ip_network((ip, bits), strict=False))
