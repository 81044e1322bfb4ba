"""A blocked host or domain is matched by every host name that it covers, and by no other."""

from unittest import mock

import pytest

from service.errors import HostBlocked, LimitReached
from service.net.sites_and_networks import host_and_parent_domains
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.host_blocklist import HostBlock

BLOCK = HostBlock("ada", 1.0, "asked us to")


def test_a_host_matches_its_own_name_and_its_parent_domains() -> None:
    assert host_and_parent_domains("a.b.example.co.uk") == ["a.b.example.co.uk", "b.example.co.uk", "example.co.uk"]
    assert host_and_parent_domains("example.org") == ["example.org"]
    assert host_and_parent_domains("192.0.2.7") == ["192.0.2.7"]
    assert host_and_parent_domains("[2001:db8::1]") == ["2001:db8::1"]
    assert host_and_parent_domains("localhost") == ["localhost"]


async def test_a_domain_is_blocked_with_all_its_hosts_and_a_host_alone(store: Store) -> None:
    await store.blocked_hosts.add("example.org", BLOCK)
    await store.blocked_hosts.add("news.example.net", BLOCK)
    hosts = [
        "example.org",
        "a.b.example.org",
        "example.net",
        "news.example.net",
        "x.news.example.net",
        "notexample.org",
    ]
    over = await store.blocked_hosts.matching([*hosts, ""])
    assert over == ["example.org", "example.org", "", "news.example.net", "news.example.net", "", ""]
    with pytest.raises(HostBlocked, match=r"example\.org is blocked"):
        await store.blocked_hosts.check("www.example.org")
    await store.blocked_hosts.check("example.net")


async def test_a_block_is_removed_once(store: Store) -> None:
    await store.blocked_hosts.add("example.org", BLOCK)
    assert await store.blocked_hosts.all() == {"example.org": BLOCK}
    assert await store.blocked_hosts.remove("example.org")
    assert not await store.blocked_hosts.remove("example.org")
    assert await store.blocked_hosts.all() == {}
    await store.blocked_hosts.check("example.org")


async def test_the_number_of_blocked_hosts_is_limited(store: Store) -> None:
    with mock.patch("service.store.coordination.host_blocklist.MAX_BLOCKED_HOSTS", 1):
        await store.blocked_hosts.add("example.org", BLOCK)
        with pytest.raises(LimitReached):
            await store.blocked_hosts.add("example.net", BLOCK)


async def test_users_of_a_blocked_domain_and_its_subdomains_count_as_suspended(store: Store) -> None:
    jids = ["a@example.org", "b@chat.example.org", "c@example.net", "d@b\u00fccher.example"]
    for jid in jids:
        await store.users.mark_welcomed(jid)
    uids = [user_id(jid) for jid in jids]
    assert await store.users.suspended_users(uids) == set()
    await store.blocked_user_domains.add("example.org", BLOCK)
    await store.blocked_user_domains.add("xn--bcher-kva.example", BLOCK)
    assert await store.users.suspended_users(uids) == {uids[0], uids[1], uids[3]}
    assert [(await store.users.get(jid)).suspended for jid in jids] == [True, True, False, True]
    people = await store.people.get_many(uids)
    assert [each.blocked_domain for each in people if each] == [
        "example.org",
        "example.org",
        "",
        "xn--bcher-kva.example",
    ]
    assert not any(each.suspended for each in people if each)
    assert await store.blocked_hosts.all() == {}
