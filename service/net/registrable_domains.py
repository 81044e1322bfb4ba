"""The sites by which request budgets are counted: all hosts of a registrable domain are one site."""

import ipaddress
from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList

_MAX_CACHED_SITES = 10_000
_suffixes = cache(PublicSuffixList)


@lru_cache(_MAX_CACHED_SITES)
def site_of(host: str) -> str:
    """Return the site (registrable domain) of a canonical URL's host.

    The site of an IP address, or of a name without a registrable domain, is the host itself.
    """
    host = host.strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return str(_suffixes().privatesuffix(host) or host)


def host_and_parent_domains(host: str) -> list[str]:
    """Return a canonical URL's host and its parent domains up to its site.

    A block or rule for any of these names applies to the host.
    """
    host, site = host.strip("[]"), site_of(host)
    names = [host]
    while names[-1].endswith(f".{site}"):
        names.append(names[-1].partition(".")[2])
    return names
