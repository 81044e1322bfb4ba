"""Answers to searches are the same as if channels that are not public did not exist.

The answers compared have hits, snippets, counts, corrections of misspelt words, and the facets of listings.
"""

import time
from datetime import date

import msgspec
import pytest

from service.clock import SystemClock
from service.discovery.av_pairs import ContentKind
from service.discovery.discover_listings import DiscoverAnswer
from service.discovery.queries.query import SearchAnswer
from service.discovery.queries.query_parser import parse_query
from service.discovery.text_search.query_expansion import ExpandedQuery
from service.model import Change, Channel, Entry
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store, opened
from service.store.directory.vocabulary_store import StoredVocabulary
from tests.support.channels import change, make_channel
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut

ROSES = Entry("1", "Roses in spring", "https://gardens.example/1", "Pruning and watering.", tags=("Gardens",))
WEEVILS = Entry("2", "Zyzzyva weevils", "https://other.example/2", "The snoutbeetle eats roses.", tags=("Beetles",))
TODAY = date(2026, 11, 1)
QUERIES = (
    "zyzzyva",
    "zyzzyv*",
    "snoutbeetel",
    "snoutbeetle OR pruning",
    "roses zyzzyva",
    "roses snoutbeetel",
    '"zyzzyva weevils"',
    "title:zyzzyva",
    "tag=beetles",
    "host=other.example",
    "lang=en limit=1",
    "ros* limit=1",
)


class Answers(msgspec.Struct, frozen=True):
    """What a person can see, by question, and what an admin's explanation adds: expanded queries and counts."""

    found: dict[str, SearchAnswer]
    listed: dict[str, DiscoverAnswer]
    expanded: dict[str, ExpandedQuery]
    frequencies: dict[str, dict[str, int]]


async def ask(settings: Settings) -> Answers:
    """Return the answers to all questions, as a process gives them that has just been started."""
    async with opened(settings) as store:
        search = Searcher(store, 3)
        questions = [f"{kind} {query}".strip() for kind in ("", "type=entry") for query in QUERIES]
        explained = {text: await search.explain(parse_query(text, TODAY)) for text in questions}
        return Answers(
            {text: each.answer for text, each in explained.items()},
            {
                "popular": await search.discover(),
                "new": await search.discover("new"),
                "beetles": await search.discover(topic="beetles"),
                "English": await search.discover(language="en", limit=1),
            },
            {text: each.expanded for text, each in explained.items()},
            {
                text: {pair: n for pair, n in each.candidates.frequencies.items() if n}
                for text, each in explained.items()
            },
        )


async def published(store: Store, url: str, entry: Entry, subscribers: int) -> Channel:
    channel = await make_channel(store, url)
    for number in range(subscribers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    await change(store, channel, Change("addition", entry), detected_s=time.time() - 60.0)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert await FanOut(store, 3).run(channel.id, state.epoch)
    await upkeep(store, channel)
    return channel


async def upkeep(store: Store, channel: Channel) -> None:
    registrar = DirectoryRegistrar(store, SystemClock(), 3)
    await registrar.schedule_changed([(channel.id, (await store.channel_index.count([channel.id]))[0])])
    await registrar.register_due()


@pytest.mark.parametrize(
    ("url", "subscribers"), [("https://other.example/feed", 2), ("https://other.example/feed?token=abc123", 9)]
)
async def test_a_private_channel_does_not_change_search_results(
    store: Store, settings: Settings, url: str, subscribers: int
) -> None:
    await published(store, "https://gardens.example/feed", ROSES, 3)
    before = await ask(settings)
    assert before.found["type=entry ros* limit=1"].hits
    await published(store, url, WEEVILS, subscribers)
    assert await ask(settings) == before


async def test_a_channel_that_becomes_private_disappears_from_results_at_once(store: Store, settings: Settings) -> None:
    await published(store, "https://gardens.example/feed", ROSES, 3)
    before = await ask(settings)
    channel = await published(store, "https://other.example/feed", WEEVILS, 3)
    public = await ask(settings)
    assert public.found["type=entry snoutbeetel"].corrections
    assert public.found["type=entry zyzzyva"].hits
    await store.subscriptions.unsubscribe("reader0@localhost", channel.id)
    after = await ask(settings)
    assert after.found == before.found, "before any worker looked again"
    assert after.listed == before.listed
    await upkeep(store, channel)
    after = await ask(settings)
    assert (after.found, after.listed) == (before.found, before.listed)


async def test_words_of_private_channels_are_stored_nowhere_in_the_directory(store: Store) -> None:
    await published(store, "https://gardens.example/feed", ROSES, 3)
    stored = set(await store.redis.call("KEYS", "cn:{m*"))
    await published(store, "https://other.example/feed", WEEVILS, 2)
    assert set(await store.redis.call("KEYS", "cn:{m*")) == stored
    kinds: tuple[ContentKind, ...] = ("channel", "entry")
    for about in kinds:
        words = await StoredVocabulary(store.channels._redis, about).read()
        assert len(words)
        assert not words.with_prefix("zyzzyva", 1)
        assert not words.with_prefix("weevil", 1)
