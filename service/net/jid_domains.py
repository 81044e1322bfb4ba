"""The domains of JIDs, by which users are blocked, limited and counted like publishers."""

import idna

from service.net.registrable_domains import site_of


def site_of_jid(jid: str) -> str:
    """Return the registrable domain of the server of a bare or full JID."""
    return site_of(jid.partition("/")[0].rpartition("@")[2])


def domain_of_jid(jid: str) -> str:
    """Return the domain of a bare or full JID in the form of hosts in canonical URLs (IDNA's ASCII form, lower case).

    The result is "" if the domain cannot be encoded in IDNA.
    """
    domain = jid.partition("/")[0].rpartition("@")[2].removesuffix(".")  # RFC 7622 §3.2
    try:
        return domain.lower() if domain.isascii() else idna.encode(domain, uts46=True).decode()
    except UnicodeError:  # also idna.IDNAError
        return ""
