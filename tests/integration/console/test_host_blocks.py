"""Admins block hosts, see which are, and allow them again; who would add something there is told."""

from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from aiohttp import web

from service.store import Store
from service.store.coordination.host_blocklist import HostBlock
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Visitor

SITE = "/hosts/example.org"


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield session


async def test_a_host_is_blocked_and_unblocked(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, "https://news.example.org/feed", listed=True)
    other = await make_channel(store, "https://example.org/feed", listed=True)
    blocked = await ada.post(f"{SITE}/block", name="News.Example.org", why="they asked us to")
    assert blocked == (303, f"{SITE}#blocked")
    _, text = await ada.get(SITE)
    assert "they asked us to" in text
    assert "Unblock news.example.org" in text
    _, text = await ada.get(f"/channels/{channel.id}")
    assert "An admin has blocked" in text
    assert "An admin has blocked" not in (await ada.get(f"/channels/{other.id}"))[1]
    _, text = await ada.get("/channels?state=blocked")
    assert channel.id in text
    assert other.id not in text
    assert "Blocked" in (await ada.get("/hosts"))[1]
    assert await ada.post("/hosts/news.example.org/allow") == (303, "/hosts/news.example.org#blocked")
    assert "An admin has blocked" not in (await ada.get(f"/channels/{channel.id}"))[1]
    assert (await ada.post("/hosts/news.example.org/allow"))[0] == 404


async def test_only_hosts_of_the_site_are_blocked_on_its_page(store: Store, ada: Visitor) -> None:
    status, text = await ada.post(f"{SITE}/block", name="example.net")
    assert status == 422
    assert "is not a host of example.org" in text
    assert (await ada.post(f"{SITE}/block", name="not a host"))[0] == 422
    assert await store.blocked_hosts.all() == {}


async def test_channels_cannot_be_added_on_a_blocked_host(
    store: Store, ada: Visitor, api: aiohttp.ClientSession
) -> None:
    await store.blocked_hosts.add("example.org", HostBlock("ada", 1.0))
    status, text = await ada.post("/channels/add", url="https://www.example.org/feed")
    assert status == 422
    assert "example.org is blocked here by an admin." in text
    async with api.post("channels", json={"url": "https://example.org/feed"}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (422, "host-blocked")


async def test_the_api_blocks_and_unblocks_hosts(api: aiohttp.ClientSession) -> None:
    async with api.put("hosts/www.example.org/block", json={"why": "spam"}) as answer:
        assert answer.status == 200
        (name,) = (await answer.json())["items"]
    assert name == "www.example.org"
    async with api.get("hosts") as answer:
        assert [(site["site"], site["blocked"]) for site in (await answer.json())["items"]] == [
            ("example.org", ["www.example.org"])
        ]
    async with api.delete("hosts/www.example.org/block") as answer:
        assert answer.status == 204
    async with api.delete("hosts/www.example.org/block") as answer:
        assert answer.status == 404
    async with api.get("blocked-hosts") as answer:
        assert await answer.json() == {"items": {}}


async def test_domains_of_people_are_blocked_and_unblocked(
    store: Store, ada: Visitor, api: aiohttp.ClientSession
) -> None:
    assert await ada.post("/blocked-domains", name="Spam.example", why="spam") == (303, "/blocked-domains")
    assert "spam.example" in (await ada.get("/blocked-domains"))[1]
    status, text = await ada.post("/blocked-domains", name="eve@spam.example")
    assert status == 422
    assert "Enter a domain such as example.org" in text
    await store.users.mark_welcomed("eve@spam.example")
    assert "Domain blocked" in (await ada.get("/people"))[1]
    async with api.get("blocked-domains") as answer:
        assert list((await answer.json())["items"]) == ["spam.example"]
    assert await ada.post("/blocked-domains/spam.example/allow") == (303, "/blocked-domains")
    async with api.put("blocked-domains/spam.example", json={}) as answer:
        assert answer.status == 200
    async with api.delete("blocked-domains/spam.example") as answer:
        assert answer.status == 204
    async with api.delete("blocked-domains/spam.example") as answer:
        assert answer.status == 404
