"""A channel moves: its subscriptions follow, no entry is lost or delivered twice, whichever process fails."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from service.errors import StoreUnavailable
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, ChannelId, Delta, Entry, Notice, UserId
from service.store import Store
from service.store.channels.channel_moves import agreed_version
from service.store.channels.channel_records import ChannelState
from service.store.client import keys
from tests.contract.test_subscriptions import DyingLink, heal_at_once
from tests.support.channels import SNAPSHOT, count_channels, make_channel, publish
from tests.support.redis_nodes import on_every_node
from tests.support.waiting import until
from workers.ownership.fanout import FanOut

ALICE, BOB = "alice@localhost", "bob@localhost"
URL, NEW = "https://example.org/feed", "https://example.net/feed"
OLD_ID, NEW_ID = channel_id(URL), channel_id(NEW)
US, OTHER = "a" * 40, "b" * 40


async def _adopt(store: Store, cid: ChannelId) -> ChannelState:
    (state,) = await store.channels.adopt([cid], US)
    assert state is not None
    return state


async def say_moved(store: Store, url: str = URL, to: str = NEW) -> None:
    """Publish the notice of the move as a version, after which the move is decided."""
    state = await _adopt(store, channel_id(url))
    told = Delta(state.channel.id, state.channel.version, 0, 3_000.0, (), notice=Notice("moved", to))
    await store.channels.publish(told, None, state.epoch, silent=False)


async def carry_out(store: Store, cid: ChannelId = OLD_ID) -> None:
    state = await _adopt(store, cid)
    assert await FanOut(store, 3).run(cid, state.epoch)
    await store.channel_moves.carry_out(state, 4_000.0)


async def tell_everybody(store: Store, cid: ChannelId, *entries: str) -> None:
    """Publish entries as the channel's owner does."""
    state = await _adopt(store, cid)
    changes = tuple(Change("addition", Entry(key, key)) for key in entries)
    delta = Delta(cid, state.channel.version, 0, 5_000.0, changes)
    await store.channels.publish(delta, SNAPSHOT, state.epoch, silent=False)
    await FanOut(store, 3).run(cid, state.epoch)


async def told_to(store: Store, jid: str) -> list[str]:
    """Remove and return everything in a user's outbox: entries by key, notices by kind."""
    uid = keys.user_id(jid)
    told: list[str] = []
    while batch := (await store.outbox.claim([uid], 20, 6.0)).get(uid):
        for item in batch.items:
            delta = await store.channels.delta(item.channel, item.version)
            assert delta is not None
            told += [delta.notice.kind] if delta.notice else [change.entry.key for change in delta.changes]
        await store.outbox.complete(done=[(uid, batch.message_id)])
    return told


async def _index(store: Store, cid: ChannelId) -> list[UserId]:
    return sorted(uid for uid, _ in (await store.channel_index.page(cid, "", 500))[0])


async def test_subscribers_are_notified_once_and_keep_their_numbers(store: Store) -> None:
    await make_channel(store, "https://example.org/other")
    await store.subscriptions.subscribe(ALICE, channel_id("https://example.org/other"))
    await make_channel(store, URL)
    before, _ = await store.subscriptions.subscribe(ALICE, OLD_ID)
    await tell_everybody(store, OLD_ID, "second")
    await say_moved(store)
    for _ in range(3):
        await carry_out(store)
    await tell_everybody(store, NEW_ID, "third")
    assert await told_to(store, ALICE) == ["second", "moved", "third"]
    _, after = await store.subscriptions.of_user(ALICE)
    assert (after.channel, after.number, after.since_s) == (NEW_ID, before.number, before.since_s)
    assert await _index(store, OLD_ID) == []
    assert await _index(store, NEW_ID) == [keys.user_id(ALICE)]
    assert await store.redis.call("ZCARD", keys.USERS_WITH_INTENTS) == 0


async def test_the_successor_continues_from_the_channels_content(store: Store) -> None:
    await make_channel(store, URL, listed=True)
    await publish(store, Channel(OLD_ID, URL), "second")
    await say_moved(store)
    await carry_out(store)
    (new,) = await store.channels.states([NEW_ID])
    assert new is not None
    assert (new.channel.url, new.channel.title, new.validators) == (NEW, SNAPSHOT.title, SNAPSHOT.validators)
    assert (new.channel.version, new.fanned_version, new.channel.listed, new.channel.dormant) == (1, 1, True, False)
    assert [entry.key for entry in await store.channels.latest(NEW_ID, 9)] == ["second", "first"]
    assert NEW_ID in await store.channels.ids_in_buckets([NEW_ID[:2]])


async def test_the_old_url_resolves_to_the_new_channel(store: Store) -> None:
    await make_channel(store, URL)
    await say_moved(store)
    await carry_out(store)
    signpost, found = await store.channels.get(OLD_ID), await store.channels.resolve(OLD_ID)
    assert signpost is not None
    assert found is not None
    assert (signpost.moved_to, signpost.dormant, signpost.listed, found.id) == (NEW_ID, True, False, NEW_ID)
    subscription, new = await store.subscriptions.subscribe(BOB, OLD_ID)
    assert (subscription.channel, new) == (NEW_ID, True)
    assert await store.channels.resolve("f" * 40) is None


async def test_a_chain_of_moves_resolves_to_its_last_channel_and_can_be_reversed(store: Store) -> None:
    third = "https://example.com/feed"
    await make_channel(store, URL)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    for url, to in ((URL, NEW), (NEW, third)):
        await say_moved(store, url, to)
        await carry_out(store, channel_id(url))
    found = await store.channels.resolve(OLD_ID)
    assert found is not None
    assert found.id == channel_id(third)
    await say_moved(store, third, URL)
    await carry_out(store, channel_id(third))
    await tell_everybody(store, OLD_ID, "home again")
    assert await told_to(store, ALICE) == ["moved", "moved", "moved", "home again"]
    for url in (URL, NEW, third):
        found = await store.channels.resolve(channel_id(url))
        assert found is not None
        assert (found.id, found.condition, found.dormant) == (OLD_ID, "", False)


async def test_a_move_interrupted_at_any_step_is_completed(store: Store) -> None:
    for survives in range(60):
        await on_every_node(store, "FLUSHALL")
        await make_channel(store, URL)
        await store.subscriptions.subscribe(ALICE, OLD_ID)
        await say_moved(store)
        died = False
        try:
            await carry_out(Store(DyingLink(store.redis, survives)))
        except StoreUnavailable:
            died = True
        if await store.channels.get(NEW_ID):
            await tell_everybody(store, NEW_ID, "meanwhile")
            await tell_everybody(store, NEW_ID, "and this")
        await carry_out(store)
        await tell_everybody(store, NEW_ID, "last")
        meanwhile = ["meanwhile", "and this"] if await store.channels.delta(NEW_ID, 4) else []
        assert await told_to(store, ALICE) == ["moved", *meanwhile, "last"], survives
        assert (await _index(store, OLD_ID), await _index(store, NEW_ID)) == ([], [keys.user_id(ALICE)])
        assert await store.redis.call("EXISTS", keys.incoming_moves(NEW_ID)) == 0
        if not died:
            return
    pytest.fail("the move never got through")


async def test_an_interrupted_move_of_a_subscription_is_healed(store: Store) -> None:
    for survives in range(60):
        await on_every_node(store, "FLUSHALL")
        await make_channel(store, URL)
        await store.subscriptions.subscribe(ALICE, OLD_ID)
        await say_moved(store)
        try:
            await carry_out(Store(DyingLink(store.redis, survives)))
        except StoreUnavailable:
            await heal_at_once(store)
            (held,) = await store.subscriptions.of_user(ALICE)
            assert await _index(store, held.channel) == [keys.user_id(ALICE)]
            assert await store.redis.call("ZCARD", keys.USERS_WITH_INTENTS) == 0
        else:
            return
    pytest.fail("the move never got through")


async def test_a_channel_with_incoming_subscribers_stays_active(store: Store) -> None:
    await make_channel(store, URL)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    await say_moved(store)
    dying = Store(DyingLink(store.redis, 0))
    for survives in range(60):
        dying = Store(DyingLink(store.redis, survives))
        with pytest.raises(StoreUnavailable):
            await carry_out(dying)
        if await store.channels.get(NEW_ID):
            break
    await store.channels.mark_dormant(NEW_ID)
    successor = await store.channels.get(NEW_ID)
    assert successor is not None
    assert not successor.dormant


async def test_a_subscriber_of_both_channels_gets_each_entry_once(store: Store) -> None:
    for url in (URL, NEW):
        await make_channel(store, url)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    kept, _ = await store.subscriptions.subscribe(ALICE, NEW_ID)
    await tell_everybody(store, NEW_ID, "second")
    await say_moved(store)
    await carry_out(store)
    await tell_everybody(store, NEW_ID, "third")
    assert await told_to(store, ALICE) == ["second", "moved", "third"]
    (left,) = await store.subscriptions.of_user(ALICE)
    assert (left.channel, left.number) == (NEW_ID, kept.number)


async def test_a_merge_delivers_entries_that_only_the_other_channel_had(store: Store) -> None:
    for url in (URL, NEW):
        await make_channel(store, url)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    await store.subscriptions.subscribe(BOB, NEW_ID)
    for cid in (OLD_ID, NEW_ID):
        await tell_everybody(store, cid, "both")
    await tell_everybody(store, NEW_ID, "not seen")
    await tell_everybody(store, NEW_ID, "nor this")
    await say_moved(store)
    await carry_out(store)
    await tell_everybody(store, NEW_ID, "after")
    assert await told_to(store, ALICE) == ["both", "moved", "not seen", "nor this", "after"]
    assert await told_to(store, BOB) == ["both", "not seen", "nor this", "after"]


async def test_a_dormant_successor_continues_from_the_channels_content(store: Store) -> None:
    for url in (URL, NEW):
        await make_channel(store, url)
    await store.channels.mark_dormant(NEW_ID)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    await tell_everybody(store, OLD_ID, "second")
    await say_moved(store)
    await carry_out(store)
    (new,) = await store.channels.states([NEW_ID])
    assert new is not None
    assert (new.channel.dormant, new.channel.version, new.fanned_version) == (False, 2, 2)
    await tell_everybody(store, NEW_ID, "third")
    assert await told_to(store, ALICE) == ["second", "moved", "third"]


async def test_after_an_unsubscribe_nothing_of_the_former_channel_is_sent(store: Store) -> None:
    await make_channel(store, URL)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    await tell_everybody(store, OLD_ID, "in flight")
    await store.outbox.claim([keys.user_id(ALICE)], 9, 6.0)
    await tell_everybody(store, OLD_ID, "queued")
    await say_moved(store)
    await carry_out(store)
    assert await store.subscriptions.unsubscribe(ALICE, NEW_ID)
    assert await told_to(store, ALICE) == []
    assert await store.outbox.in_flight([keys.user_id(ALICE)]) == {keys.user_id(ALICE): []}


async def test_a_late_subscriber_of_the_old_channel_moves_without_a_backlog(store: Store) -> None:
    await make_channel(store, URL)
    await say_moved(store)
    await carry_out(store)
    await tell_everybody(store, NEW_ID, "before")
    # What a bot does that had looked the channel up before it moved.
    uid = keys.user_id(BOB)
    own = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.restrictions(uid))
    await store.redis.run_script("user_subscribe", own, BOB, OLD_ID, 2, "AAAABQ", 0, "")
    await store.subscription_intents.complete(uid, 0.0)
    await carry_out(store)
    await tell_everybody(store, NEW_ID, "after")
    assert await told_to(store, BOB) == ["after"]


async def test_a_channel_removed_during_its_move_leaves_no_data(store: Store) -> None:
    await make_channel(store, URL)
    await store.subscriptions.subscribe(ALICE, OLD_ID)
    await say_moved(store)
    state = await _adopt(store, OLD_ID)
    await store.remove_channel(OLD_ID)
    await store.channel_moves.carry_out(state, 4_000.0)
    assert await store.subscriptions.of_user(ALICE) == []
    assert await count_channels(store) == 0


async def test_a_removed_successor_is_created_again_without_a_backlog(store: Store) -> None:
    await make_channel(store, URL)
    await say_moved(store)
    await carry_out(store)
    await store.remove_channel(NEW_ID)
    await carry_out(store)
    assert await store.channels.get(NEW_ID) is None
    await store.subscriptions.subscribe(BOB, OLD_ID)
    await carry_out(store)
    (new,) = await store.channels.states([NEW_ID])
    assert new is not None
    assert new.channel.dormant  # so its next poll is taken in silently
    assert [held.channel for held in await store.subscriptions.of_user(BOB)] == [NEW_ID]


async def _move_with_deaths(store: Store, random: Random) -> None:
    while True:
        try:
            await carry_out(Store(DyingLink(store.redis, random.randrange(10, 250))))
        except StoreUnavailable:
            continue
        return


async def _appear(store: Store, entries: Sequence[str]) -> None:
    await until(lambda: store.channels.get(NEW_ID), "the successor is there")
    for entry in entries:
        await tell_everybody(store, NEW_ID, entry)


async def _leave(store: Store, jid: str, random: Random) -> None:
    """Unsubscribe a user from the channel or its successor; nothing may be sent afterwards."""
    await until(lambda: store.subscriptions.unsubscribe(jid, random.choice((OLD_ID, NEW_ID))), f"{jid} has left")
    assert await told_to(store, jid) == []


@pytest.mark.parametrize("seed", range(3))
async def test_concurrent_entries_unsubscribes_and_crashes_lose_nothing(store: Store, seed: int) -> None:
    """Guarantees I1 to I5: remaining subscribers get each entry once and in order; others get nothing afterwards."""
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    staying, leaving = ([f"{who}{number}@localhost" for number in range(count)] for who, count in (("s", 12), ("l", 4)))
    await make_channel(store, URL)
    for jid in (*staying, *leaving):
        await store.subscriptions.subscribe(jid, OLD_ID)
    await tell_everybody(store, OLD_ID, "before")
    await say_moved(store)
    entries = [f"entry {number}" for number in range(12)]
    leavers = (_leave(store, jid, random) for jid in leaving)
    await asyncio.gather(_move_with_deaths(store, random), _appear(store, entries), *leavers)
    await tell_everybody(store, NEW_ID, "after")
    for jid in leaving:
        assert (await told_to(store, jid), await store.subscriptions.of_user(jid)) == ([], [])
    for jid in staying:
        assert await told_to(store, jid) == ["before", "moved", *entries, "after"]
        assert [held.channel for held in await store.subscriptions.of_user(jid)] == [NEW_ID]
    assert await _index(store, NEW_ID) == sorted(map(keys.user_id, staying))
    assert await _index(store, OLD_ID) == []


def _delta(version: int, *entries: str, initial: bool = False) -> Delta:
    return Delta(NEW_ID, version - 1, version, 0.0, tuple(Change("addition", Entry(key)) for key in entries), initial)


def test_channels_agree_up_to_the_last_version_without_new_entries() -> None:
    told = [Entry("a"), Entry("b", link="https://example.org/b")]
    assert agreed_version(told, [_delta(5, "a"), _delta(4, "x")], 5) == 5
    assert agreed_version(told, [_delta(5, "x"), _delta(4, "y", "a"), _delta(3, "b", "a")], 5) == 3
    assert agreed_version(told, [_delta(5, "x"), _delta(4), _delta(3, "y", initial=True)], 5) == 3
    assert agreed_version(told, [_delta(5, "x"), _delta(4, "y")], 5) == 5
    elsewhere = Delta(NEW_ID, 3, 4, 0.0, (Change("addition", Entry("key", link="https://example.org/b")),))
    assert agreed_version(told, [_delta(5, "x"), elsewhere], 5) == 4
