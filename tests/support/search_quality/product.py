"""The product's search over the corpus: entries are registered and searched as in production."""

import asyncio
import datetime as dt
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from service.discovery.queries.query_parser import parse_query
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, Delta, Entry, Validators
from service.search.searcher import Searcher
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.channels.public_entries import MAX_VERSION_ENTRIES
from tests.support.search_quality.corpus import Document, FeedChannel
from workers.ownership.fanout import FanOut

_PUBLIC_FROM: Final = 1
_AT_ONCE: Final = 4
_TODAY: Final = dt.date(2026, 11, 15)


async def publish_corpus(store: Store, documents: Sequence[Document], *, readers: int = _PUBLIC_FROM) -> None:
    """Publish entries in versions of their channels, each with ``readers`` subscribers, and register them."""
    by_channel: dict[FeedChannel, list[Document]] = defaultdict(list)
    for document in documents:
        by_channel[document.channel].append(document)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def publish(channel: FeedChannel, own: Sequence[Document]) -> None:
        async with limit:
            await _publish_channel(store, channel, own, readers)

    await asyncio.gather(*(publish(channel, own) for channel, own in by_channel.items()))


async def search_product(store: Store, text: str, language: str, most: int) -> list[str]:
    """Return the ids of up to ``most`` entries of the corpus that the product finds, the best first."""
    query = msgspec.structs.replace(parse_query(f"type=entry {text}", _TODAY), limit=most)
    answer = await Searcher(store, _PUBLIC_FROM).find(query, language)
    return [hit.entry.key for hit in answer.hits if hit.entry is not None]


async def _publish_channel(store: Store, channel: FeedChannel, documents: Sequence[Document], readers: int) -> None:
    snapshot = Snapshot(Validators(), b"", channel.title, f"https://{channel.site}/", language=channel.language)
    wanted = Channel(channel_id(channel.url), channel.url, created_s=1_000.0)
    created = await store.channels.create(wanted, snapshot, [], 1_000.0)
    for number in range(readers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", created.id)
    (state,) = await store.channels.adopt([created.id], "a" * 40)
    assert state is not None
    fan_out, version = FanOut(store, _PUBLIC_FROM), created.version
    for first in range(0, len(documents), MAX_VERSION_ENTRIES):
        changes = tuple(
            Change("addition", _entry(document)) for document in documents[first : first + MAX_VERSION_ENTRIES]
        )
        delta = Delta(created.id, version, 0, time.time(), changes)
        version = (await store.channels.publish(delta, snapshot, state.epoch, silent=False)).version
        assert await fan_out.run(created.id, state.epoch)


def _entry(document: Document) -> Entry:
    published = dt.datetime.combine(document.date, dt.time(12), dt.UTC).timestamp()
    link = f"https://{document.channel.site}/{document.id}"
    return Entry(
        document.id, document.title, link, document.text, (document.author,), document.tags, published=published
    )
