"""Hosts of one registrable domain are one site; addresses of one network are one group."""

import pytest

from service.feeds.canonical_urls import canonical_url, host_of
from service.net.sites_and_networks import address_group, domain_of_jid, site_of


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("example.com", "example.com"),
        ("feeds.news.example.co.uk", "example.co.uk"),
        ("ada.github.io", "ada.github.io"),
        ("github.io", "github.io"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:4700::1111]", "2606:4700::1111"),
    ],
)
def test_the_site_of_a_host_is_its_registrable_domain(host: str, site: str) -> None:
    assert site_of(host) == site


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("93.184.216.34", "93.184.216.0/24"),
        ("::ffff:93.184.216.34", "93.184.216.0/24"),
        ("2606:4700:10:20::1", "2606:4700:10::/48"),
        ("fe80::1%eth0", "fe80::/48"),
    ],
)
def test_an_address_is_grouped_by_network(address: str, group: str) -> None:
    assert address_group(address) == group


@pytest.mark.parametrize(
    "domain", ["Example.org", "example.org.", "straße.example", "BÜCHER.example", "xn--bcher-kva.example"]
)
def test_the_domain_of_a_jid_is_normalized_like_a_blocked_domain(domain: str) -> None:
    assert domain_of_jid(f"Ann@{domain}/phone") == host_of(canonical_url(f"https://{domain}/"))


def test_a_jid_domain_that_is_no_host_name_is_normalized_to_nothing() -> None:
    assert domain_of_jid("ann@é..example") == ""
