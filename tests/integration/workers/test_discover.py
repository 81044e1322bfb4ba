"""Browsing lists public channels that work, and no others."""

import time

import pytest

from service.discovery.discover_listings import Facet
from service.model import Channel
from service.search.searcher import Searcher
from service.store import Store
from tests.support.channels import make_channel, register_names


@pytest.fixture
def search(store: Store) -> Searcher:
    return Searcher(store, 3)


async def subscribed(store: Store, url: str, readers: int) -> Channel:
    channel = await make_channel(store, url)
    for number in range(readers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    return channel


async def registered(store: Store, *channels: Channel) -> None:
    counts = await store.channel_index.count([channel.id for channel in channels])
    await register_names(store, list(zip((channel.id for channel in channels), counts, strict=True)))


async def test_popular_lists_public_channels_only(store: Store, search: Searcher) -> None:
    public = [await subscribed(store, f"https://{readers}.example/feed", readers) for readers in (3, 5, 4)]
    private = [
        await subscribed(store, "https://few.example/feed", 2),
        await subscribed(store, "https://secret.example/feed?token=abcdef", 9),
    ]
    await registered(store, *public, *private)
    answer = await search.discover()
    assert [(hit.channel.url, hit.subscribers) for hit in answer.hits] == [
        ("https://5.example/feed", 5),
        ("https://4.example/feed", 4),
        ("https://3.example/feed", 3),
    ]
    assert answer.languages == (Facet("en", 3),)
    assert not answer.has_more


async def test_a_channel_that_becomes_private_is_neither_listed_nor_counted(store: Store, search: Searcher) -> None:
    channel = await subscribed(store, "https://example.org/feed", 3)
    await registered(store, channel)
    assert len((await search.discover(language="en")).hits) == 1
    await store.subscriptions.unsubscribe("reader0@localhost", channel.id)
    answer = await search.discover(language="en")
    assert (answer.hits, answer.languages, answer.topics) == ((), (), ())


async def test_new_lists_channels_known_for_less_than_a_month(store: Store, search: Searcher) -> None:
    now_s = time.time()
    old = await subscribed(store, "https://old.example/feed", 3)
    new = [
        await make_channel(store, f"https://{days}.example/feed", listed=True, created_s=now_s - days * 86_400.0)
        for days in (20, 2)
    ]
    await registered(store, old, *new)
    assert [hit.channel.url for hit in (await search.discover("new")).hits] == [
        "https://2.example/feed",
        "https://20.example/feed",
    ]
