"""Saved searches: stored with their owner, loaded by workers, and delivered once while they exist."""

import asyncio

import pytest

from service.discovery.queries.query_parser import parse_watch
from service.discovery.queries.saved_searches import SearchableEntry
from service.discovery.search_candidates import require_all
from service.errors import LimitReached
from service.model import Change, Channel, Delta, Entry
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import MatchedSearch, OutboxItem
from service.store.directory.saved_search_store import SavedSearchMatcher
from tests.support.channels import change, make_channel
from workers.ownership.fanout import FanOut

ALICE, BOB = "alice@localhost", "bob@localhost"
PYTHON = parse_watch("tag=python")
SECRET_URL = "https://example.org/feed?token=abc"


def subject(*pairs: str) -> SearchableEntry:
    return SearchableEntry(Entry("1", "A title", summary="The quick brown fox"), pairs)


async def test_a_saved_search_is_matched_by_every_worker_until_removed(store: Store) -> None:
    early, late = SavedSearchMatcher(store.saved_searches), SavedSearchMatcher(store.saved_searches)
    assert await early.match([subject("tag=python")]) == [set()]
    watch = await store.saved_searches.add(ALICE, PYTHON, "tag=python", 3)
    phrase = await store.saved_searches.add(BOB, parse_watch('"brown fox"'), '"brown fox"', 3)
    for matcher in (early, late):
        assert await matcher.match([subject("tag=python"), subject()]) == [{watch.id, phrase.id}, {phrase.id}]
    ended = await store.saved_searches.remove(ALICE, watch.number)
    assert ended == watch
    assert await store.saved_searches.remove(ALICE, watch.number) is None
    for matcher in (early, late):
        assert await matcher.match([subject("tag=python")]) == [{phrase.id}]


async def test_a_worker_behind_the_trimmed_log_loads_all_searches_again(store: Store) -> None:
    matcher = SavedSearchMatcher(store.saved_searches)
    first = await store.saved_searches.add(ALICE, PYTHON, "tag=python", 9)
    assert await matcher.match([subject("tag=python")]) == [{first.id}]
    await store.saved_searches.remove(ALICE, first.number)
    second = await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    await store.redis.call("XTRIM", keys.SAVED_SEARCH_LOG, "MAXLEN", 0)
    assert await matcher.match([subject("tag=python")]) == [{second.id}]


async def test_identical_searches_are_stored_once_and_limited(store: Store) -> None:
    first = await store.saved_searches.add(ALICE, PYTHON, "tag=python", 2)
    assert await store.saved_searches.add(ALICE, PYTHON, "tag=python", 2) == first
    await store.saved_searches.add(ALICE, parse_watch("tag=rust"), "tag=rust", 2)
    with pytest.raises(LimitReached):
        await store.saved_searches.add(ALICE, parse_watch("tag=go"), "tag=go", 2)
    assert [watch.number for watch in await store.saved_searches.of_user(ALICE)] == [1, 2]
    assert await SavedSearchMatcher(store.saved_searches).match([subject("tag=go")]) == [set()]


async def public(store: Store, url: str = "https://example.org/feed", subscribers: int = 3) -> Channel:
    channel = await make_channel(store, url)
    for number in range(subscribers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    return channel


async def told(store: Store, jid: str) -> list[OutboxItem]:
    batches = await store.outbox.claim([keys.user_id(jid)], 20, 5.0)
    return [item for batch in batches.values() for item in batch.items]


async def published(store: Store, channel: Channel, *entries: Entry, base: int = 1) -> Delta:
    delta = await change(store, channel, *(Change("addition", entry) for entry in entries), base=base)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    for _ in range(2):  # and once more, as after a crash
        assert await FanOut(store, 3).run(channel.id, state.epoch)
        await store.channels.record_fanout(channel.id, state.epoch, base, "")
    return delta


async def test_matching_entries_are_queued_once(store: Store) -> None:
    channel = await public(store)
    await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    await store.saved_searches.add(BOB, parse_watch('"snakes"'), '"snakes"', 9)
    await published(store, channel, Entry("a", "Other"), Entry("b", "On snakes", tags=("Python",)), Entry("c", "Last"))
    (item,) = await told(store, BOB)
    assert (item.channel, item.version, item.omitted) == (channel.id, 2, (0, 2))
    assert item.matches == (MatchedSearch(1, "tag=python", (1,)), MatchedSearch(2, '"snakes"', (1,)))
    await published(store, channel, Entry("d", "Nothing of that"), base=2)
    assert await told(store, BOB) == []


async def test_a_subscriber_with_a_saved_search_gets_an_entry_once(store: Store) -> None:
    channel = await public(store)
    await store.saved_searches.add("reader1@localhost", PYTHON, "tag=python", 9)
    await published(store, channel, Entry("b", "On snakes", tags=("Python",)))
    assert [(item.version, item.omitted) for item in await told(store, "reader1@localhost")] == [(2, None)]


async def test_a_matching_article_of_two_channels_is_delivered_once(store: Store) -> None:
    await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    entry = Entry("b", "On snakes", "https://example.org/articles/snakes", tags=("Python",))
    for name in ("one", "two"):
        await published(store, await public(store, f"https://example.org/{name}"), entry)
    assert [item.omitted for item in await told(store, BOB)] == [None, (0,)]


@pytest.mark.parametrize(("url", "subscribers"), [("https://example.org/feed", 2), (SECRET_URL, 5)])
async def test_entries_of_private_channels_match_no_saved_search(store: Store, url: str, subscribers: int) -> None:
    channel = await public(store, url, subscribers)
    await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    await published(store, channel, Entry("b", "On snakes", tags=("Python",)))
    assert await told(store, BOB) == []
    assert (await store.entry_directory.find(require_all(["tag=python"]), (), 10)).found == ()


async def test_matches_of_a_removed_search_are_not_delivered(store: Store) -> None:
    channel = await public(store)
    watch = await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    await store.redis.call("HDEL", keys.saved_searches(keys.user_id(BOB)), watch.number)
    await published(store, channel, Entry("b", "On snakes", tags=("Python",)))
    assert await told(store, BOB) == []


async def test_changes_matched_only_by_a_removed_search_are_omitted(store: Store) -> None:
    channel = await public(store)
    await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    ended = await store.saved_searches.add(BOB, parse_watch("tag=rust"), "tag=rust", 9)
    await store.redis.call("HDEL", keys.saved_searches(keys.user_id(BOB)), ended.number)
    both = (Entry("a", "On crabs", tags=("Rust",)), Entry("b", "On both", tags=("Python", "Rust")))
    await published(store, channel, *both)
    (item,) = await told(store, BOB)
    assert (item.omitted, item.matches) == ((0,), (MatchedSearch(1, "tag=python", (1,)),))


async def test_resent_and_remembered_messages_name_the_saved_search(
    store: Store,
) -> None:
    await store.saved_searches.add(BOB, PYTHON, "tag=python", 9)
    await published(store, await public(store), Entry("b", "On snakes", tags=("Python",)))
    uid = keys.user_id(BOB)
    (batch,) = (await store.outbox.claim([uid], 20, 5.0)).values()
    assert batch.items[0].matches == (MatchedSearch(1, "tag=python", (0,)),)
    await store.outbox.complete(acked=[(uid, batch.message_id)])
    assert [flying.items for flying in (await store.outbox.in_flight([uid]))[uid]] == [batch.items]
    assert [message.items for message in (await store.outbox.sent_messages([uid]))[0]] == [batch.items]


async def test_concurrent_searches_get_different_numbers(store: Store) -> None:
    asked = (store.saved_searches.add(ALICE, parse_watch(f"tag={n}"), f"tag={n}", 9) for n in range(5))
    assert sorted(watch.number for watch in await asyncio.gather(*asked)) == [1, 2, 3, 4, 5]
