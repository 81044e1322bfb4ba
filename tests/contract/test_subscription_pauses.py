"""Pauses: nothing is queued during a pause, nothing is lost, and at its end one item stands for all versions."""

import pytest

from service.feeds.entries.version_parts import ArticleHashes, VersionParts
from service.model import Channel
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import Batch, ClaimRules, MatchedSearch, SavedSearchHit, Suppressions
from service.users.preferences import FOR_ALL, Preferences
from tests.support.channels import make_channel

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


async def followed(store: Store, count: int = 1) -> list[Channel]:
    """Channels that Alice subscribes to."""
    found = [await make_channel(store, f"https://example.org/{number}") for number in range(count)]
    for channel in found:
        await store.subscriptions.subscribe(ALICE, channel.id)
    return found


async def give(store: Store, channel: Channel, *versions: int, parts: VersionParts = VersionParts()) -> None:  # noqa: B008 - immutable
    for version in versions:
        await store.outbox.enqueue([UID], channel.id, version, 5.0, parts)


async def claim(store: Store) -> Batch | None:
    return (await store.outbox.claim([UID], 20, 6.0)).get(UID)


def told(batch: Batch | None) -> list[tuple[int, int | None]]:
    return [(item.version, item.after_version) for item in (batch.items if batch else ())]


async def test_a_pause_queues_nothing_and_ends_with_one_item(store: Store) -> None:
    (channel,) = await followed(store)
    assert await store.pauses.pause(ALICE, [channel.id]) == [channel.id]
    assert await store.pauses.pause(ALICE, [channel.id]) == []
    await give(store, channel, 2, 3, 4)
    assert await store.outbox.waiting_users() == []
    (held,) = await store.subscriptions.of_user(ALICE)
    assert (held.paused_version, held.seen_version) == (1, 4)
    resumed = await store.pauses.resume(ALICE, [channel.id])
    assert resumed.withheld == {channel.id: 3}
    assert await store.outbox.waiting_users() == [UID]
    await give(store, channel, 4, 5)
    assert told(await claim(store)) == [(4, 1), (5, None)]
    assert (await store.pauses.resume(ALICE, [channel.id])).withheld == {}


async def test_a_pause_withholds_queued_items_but_not_batches_in_flight(store: Store) -> None:
    one, other = await followed(store, 2)
    await give(store, one, 2)
    flying = await claim(store)
    await give(store, one, 3, 4)
    await give(store, other, 2)
    await store.pauses.pause(ALICE, [one.id])
    assert (await store.outbox.in_flight([UID]))[UID] == [flying]
    batch = await claim(store)
    assert batch is not None
    assert [item.channel for item in batch.items] == [other.id]
    await store.pauses.resume(ALICE, [one.id])
    assert told(await claim(store)) == [(4, 2)]


async def test_a_second_pause_keeps_withheld_versions(store: Store) -> None:
    (channel,) = await followed(store)
    await store.pauses.pause(ALICE, [channel.id])
    await give(store, channel, 2, 3)
    await store.pauses.resume(ALICE, [channel.id])
    await store.pauses.pause(ALICE, [channel.id])
    await give(store, channel, 4)
    assert (await store.pauses.resume(ALICE, [channel.id])).withheld == {channel.id: 3}
    assert told(await claim(store)) == [(4, 1)]


async def test_a_pause_without_versions_queues_nothing(store: Store) -> None:
    (channel,) = await followed(store)
    await store.pauses.pause(ALICE, [channel.id])
    assert (await store.pauses.resume(ALICE, [channel.id])).withheld == {channel.id: 0}
    assert await claim(store) is None


async def test_resuming_returns_whether_saved_searches_were_paused(store: Store) -> None:
    assert not (await store.pauses.resume(ALICE, [], saved_searches=True)).saved_searches_resumed
    await store.pauses.pause(ALICE, [], saved_searches=True)
    assert not (await store.pauses.resume(ALICE, [])).saved_searches_resumed
    assert (await store.pauses.resume(ALICE, [], saved_searches=True)).saved_searches_resumed
    assert not (await store.pauses.resume(ALICE, [], saved_searches=True)).saved_searches_resumed


async def test_automatic_pauses_end_without_ending_the_users_pauses(store: Store) -> None:
    one, other = await followed(store, 2)
    both = [one.id, other.id]
    await store.pauses.pause(ALICE, [one.id])
    assert await store.pauses.pause(ALICE, both, automatic=True) == [other.id]
    assert (await store.pauses.resume(ALICE, both, automatic=True)).withheld == {other.id: 0}
    await store.pauses.pause(ALICE, both, automatic=True)
    await store.pauses.pause(ALICE, [other.id])
    assert (await store.pauses.resume(ALICE, both, automatic=True)).withheld == {}
    assert (await store.pauses.resume(ALICE, both)).withheld == {one.id: 0, other.id: 0}


async def test_a_paused_subscription_that_moves_stays_paused_under_its_number(store: Store) -> None:
    old, new = (await followed(store))[0], await make_channel(store, "https://example.org/new")
    await store.preferences.put(ALICE, 1, Preferences(title="Mine"))
    await store.pauses.pause(ALICE, [old.id], automatic=True)
    await store.subscriptions.move(old.id, new.id, 1)
    await give(store, new, 2)
    (held,) = await store.subscriptions.of_user(ALICE)
    assert (held.channel, held.number, held.paused_version) == (new.id, 1, 1)
    assert await store.preferences.of_users([UID]) == [{1: Preferences(title="Mine")}]
    assert (await store.pauses.resume(ALICE, [new.id], automatic=True)).withheld == {new.id: 1}


async def test_matches_of_paused_saved_searches_are_counted(store: Store) -> None:
    channel = await make_channel(store)
    await store.redis.call("HSET", keys.saved_searches(UID), 1, "")
    hits = [SavedSearchHit(UID, (MatchedSearch(1, "x", (0, 2)),))]
    await store.pauses.pause(ALICE, [], saved_searches=True)
    for _ in range(2):
        await store.outbox.enqueue_hits(channel.id, 2, 5.0, hits, news=(), changes=3)
    assert await store.outbox.waiting_users() == []
    assert (await store.pauses.resume(ALICE, [], saved_searches=True)).missed_matches == 2
    await store.outbox.enqueue_hits(channel.id, 3, 5.0, hits, news=(), changes=3)
    assert told(await claim(store)) == [(3, None)]


async def test_preferences_are_deleted_with_their_subscription(store: Store) -> None:
    (channel,) = await followed(store)
    mine = {1: Preferences(muted=True), FOR_ALL: Preferences(edits=False)}
    for number, preferences in mine.items():
        await store.preferences.put(ALICE, number, preferences)
    assert await store.preferences.of_users([UID, "nobody"]) == [mine, {}]
    await store.subscriptions.unsubscribe(ALICE, channel.id)
    assert await store.preferences.of_users([UID]) == [{FOR_ALL: Preferences(edits=False)}]
    await store.preferences.put(ALICE, FOR_ALL, Preferences())
    assert not await store.redis.call("EXISTS", keys.preferences(UID))


def articles(*names: str) -> ArticleHashes:
    """Return articles at the positions from 0; each has a hash of its own and a hash shared by all channels."""
    return tuple((n, (f"own {name}".encode().ljust(8), name.encode().ljust(8))) for n, name in enumerate(names))


async def test_withheld_articles_do_not_count_as_delivered(store: Store) -> None:
    one, other = await followed(store, 2)
    await give(store, one, 2, parts=VersionParts(articles("x", "y")))
    ((queued,),) = await store.outbox.queued_items({UID: ""}, 10)
    assert (queued.item.channel, queued.item.version) == (one.id, 2)
    batch = (await store.outbox.claim([UID], 20, 6.0, {UID: ClaimRules({queued.id: (0,)})}))[UID]
    assert [item.omitted for item in batch.items] == [(0,)]
    await give(store, other, 2, parts=VersionParts(articles("x", "y")))
    batch = (await store.outbox.claim([UID], 20, 6.0))[UID]
    assert [(item.channel, item.omitted) for item in batch.items] == [(other.id, (1,))]


@pytest.mark.parametrize("behind", [0, 1])
async def test_only_examined_items_are_claimed(store: Store, behind: int) -> None:
    (channel,) = await followed(store)
    await give(store, channel, *range(2, 2 + behind))
    (looked_at,) = await store.outbox.queued_items({UID: ""}, 10)
    await give(store, channel, 2 + behind)
    withheld = {each.id: None for each in looked_at}
    assert await store.outbox.claim([UID], 20, 6.0, {UID: ClaimRules(dict(withheld))}) == {}
    assert await store.outbox.waiting_users() == [UID], "there is more to look at"
    assert told(await claim(store)) == [(2 + behind, None)]


async def test_deferred_items_stay_queued_and_delivery_times_are_recorded(
    store: Store,
) -> None:
    one, other = await followed(store, 2)
    await give(store, one, *range(2, 27))
    await give(store, other, 2, 3)
    (queue,) = await store.outbox.queued_items({UID: ""}, 30)
    (after,) = await store.outbox.queued_items({UID: queue[24].id}, 30)
    assert [each.item.channel for each in after] == [other.id, other.id]
    later: Suppressions = {each.id: "later" if each.item.channel == one.id else () for each in queue}
    batch = (await store.outbox.claim([UID], 20, 6.0, {UID: ClaimRules(later, frozenset({other.id}))}))[UID]
    assert [(item.channel, item.version) for item in batch.items] == [(other.id, 2), (other.id, 3)]
    (told_at_s,) = await store.outbox.last_sent_s([UID])
    assert list(told_at_s) == [other.id]
    assert told_at_s[other.id] >= queue[-1].queued_s, "by the clock that queues"
    await store.outbox.complete(done=[(UID, batch.message_id)])
    assert await store.outbox.claim([UID], 20, 6.0, {UID: ClaimRules(later)}) == {}
    assert await store.outbox.waiting_users() == [UID]
    assert told(await claim(store)) == [(version, None) for version in range(2, 22)]
    await store.subscriptions.unsubscribe(ALICE, other.id)
    assert await store.outbox.last_sent_s([UID]) == [{}]


@pytest.mark.parametrize("own", [False, True])
async def test_a_reachable_user_keeps_their_own_pauses(store: Store, *, own: bool) -> None:
    one, other = await followed(store, 2)
    both = [one.id, other.id]
    if own:
        await store.pauses.pause(ALICE, [one.id], saved_searches=True)
    for _ in range(2):
        await store.pauses.suspend_unreachable(ALICE, both)
    assert (await store.users.get(ALICE)).unreachable
    await give(store, one, 2)
    await give(store, other, 2)
    assert await store.outbox.waiting_users() == []
    assert await store.pauses.resume_reachable(ALICE, both)
    assert not await store.pauses.resume_reachable(ALICE, both)
    batch = await claim(store)
    assert batch is not None
    assert [item.channel for item in batch.items] == ([other.id] if own else both)
    assert await store.redis.call("HEXISTS", keys.user(UID), "unheard") == own


async def test_bounced_items_are_delivered_when_the_user_is_reachable(store: Store) -> None:
    one, other = await followed(store, 2)
    await give(store, one, 2, 3)
    flying = await claim(store)
    assert flying is not None
    await give(store, one, 4)
    await give(store, other, 2)
    await store.pauses.suspend_unreachable(ALICE, [one.id, other.id])
    await store.outbox.move_to_dead_letters(UID, flying.message_id, "nobody there")
    await give(store, one, 5)
    assert await claim(store) is None
    await store.pauses.resume_reachable(ALICE, [one.id, other.id])
    assert sorted(told(await claim(store))) == [(2, 1), (5, 1)]
