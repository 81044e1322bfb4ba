"""The page Discover and its API operation list public channels, and no private ones."""

import time

from msgspec import json

from service.console.resources.fleet.discover import Discovered, DiscoveredChannel
from service.discovery.discover_listings import Facet
from service.model import Channel
from service.store import Store
from tests.support.channels import make_channel, register_names
from tests.support.console import Visitor


async def public_and_private(store: Store) -> tuple[Channel, Channel]:
    public = await make_channel(store, "https://public.example/feed", created_s=time.time() - 86_400.0)
    private = await make_channel(store, "https://private.example/feed", created_s=time.time())
    for channel, readers in ((public, 4), (private, 2)):
        for number in range(readers):
            await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    await register_names(store, [(public.id, 4), (private.id, 2)])
    return public, private


async def test_the_api_lists_public_channels_with_languages(store: Store, ada: Visitor) -> None:
    public, _ = await public_and_private(store)
    listed = DiscoveredChannel(public.id, public.url, "A feed", "en-GB", 4, public.created_s)
    expected = Discovered((listed,), (Facet("en", 1),), (), has_more=False)
    for query in ("", "?order=new", "?language=en&limit=1"):
        status, text = await ada.get(f"/api/v1/discover{query}")
        assert status == 200, query
        assert json.decode(text, type=Discovered) == expected
    for query in ("?order=oldest", "?language=%21", "?limit=51", "?topic=%00"):
        assert (await ada.get(f"/api/v1/discover{query}"))[0] == 422, query


async def test_the_page_links_to_languages_and_keeps_the_entered_values(store: Store, ada: Visitor) -> None:
    public, private = await public_and_private(store)
    _, text = await ada.get("/directory/discover?order=new")
    assert f'href="/channels/{public.id}"' in text
    assert private.id not in text
    assert 'href="/directory/discover?order=new&amp;language=en"' in text
    _, text = await ada.get("/directory/discover?language=fr&topic=a+b")
    assert "No public channels yet with this language and topic" in text
    assert 'value="a b"' in text
    assert (await ada.get("/directory/discover?language=%21"))[0] == 422
