"""Subscriptions: durable when acknowledged, completed after a crash at any step, each version delivered once."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from service.errors import NotSubscribed, StoreUnavailable
from service.feeds.entries.version_parts import VersionParts
from service.store import Store
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient
from tests.support.channels import make_channel, publish

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


class DyingLink(RedisClient):
    """A client whose process fails after a number of round trips."""

    def __init__(self, link: RedisClient, survives: int) -> None:
        self._link, self._left = link, survives

    def _step(self) -> None:
        if self._left == 0:
            raise StoreUnavailable("killed")
        self._left -= 1

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        self._step()
        return await self._link.call_many(commands)


async def heal_at_once(store: Store) -> None:
    await store.subscription_intents.replay(0.0)


async def test_a_subscription_keeps_its_number_and_starts_at_the_present_version(store: Store) -> None:
    one, two = await make_channel(store, "https://example.org/1"), await make_channel(store, "https://example.org/2")
    await publish(store, two, "x")
    first, new = await store.subscriptions.subscribe(ALICE, one.id)
    assert (new, first.number, first.seen_version) == (True, 1, 1)
    second, _ = await store.subscriptions.subscribe(ALICE, two.id)
    assert (second.number, second.seen_version) == (2, 2)
    again, new = await store.subscriptions.subscribe(ALICE, one.id)
    assert (new, again) == (False, first)
    assert [s.number for s in await store.subscriptions.of_user(ALICE)] == [1, 2]
    assert await store.subscriptions.count(one.id) == 1


async def test_subscribing_to_a_channel_that_does_not_exist_leaves_nothing(store: Store) -> None:
    with pytest.raises(NotSubscribed):
        await store.subscriptions.subscribe(ALICE, "f" * 40)
    assert await store.subscriptions.of_user(ALICE) == []
    assert await store.redis.call("ZCARD", keys.USERS_WITH_INTENTS) == 0


@pytest.mark.parametrize("first", ["nothing", "subscribed", "left"])
@pytest.mark.parametrize("change", ["subscribe", "unsubscribe"])
async def test_both_indexes_agree_after_a_crash_at_any_step(store: Store, first: str, change: str) -> None:
    channel = await make_channel(store)
    for survives in range(20):
        if first != "nothing":
            await store.subscriptions.subscribe(ALICE, channel.id)
        if first == "left":
            await store.subscriptions.unsubscribe(ALICE, channel.id)
        dying = DyingLink(store.redis, survives)
        subscriptions = Store(dying).subscriptions
        died = False
        try:
            if change == "subscribe":
                await subscriptions.subscribe(ALICE, channel.id)
            else:
                await subscriptions.unsubscribe(ALICE, channel.id)
        except StoreUnavailable:
            died = True
        await heal_at_once(store)
        truth = len(await store.subscriptions.of_user(ALICE))
        assert await store.subscriptions.count(channel.id) == truth
        assert await store.redis.call("ZCARD", keys.USERS_WITH_INTENTS) == 0
        if not died:
            assert truth == (change == "subscribe")
            return
        await store.subscriptions.unsubscribe(ALICE, channel.id)
    pytest.fail("the change never got through")


async def test_intents_from_before_a_clock_change_are_healed(store: Store) -> None:
    channel = await make_channel(store)
    dying = DyingLink(store.redis, 4)
    with pytest.raises(StoreUnavailable):
        await Store(dying).subscriptions.subscribe(ALICE, channel.id)
    await store.redis.call("ZADD", keys.USERS_WITH_INTENTS, (time.time() + 3600) * 1000, UID)
    assert await store.subscription_intents.replay() == 1
    assert await store.subscriptions.count(channel.id) == len(await store.subscriptions.of_user(ALICE)) == 1


async def test_a_late_replay_of_an_intent_does_not_undo_a_later_change(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await store.subscriptions.unsubscribe(ALICE, channel.id)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await store.channel_index.remove(channel.id, [(UID, 2)])
    assert await store.subscriptions.count(channel.id) == 1


async def test_a_version_is_queued_once_however_often_fan_out_is_repeated(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    stranger = keys.user_id("stranger@localhost")
    for _ in range(3):
        assert await store.outbox.enqueue([UID, stranger], channel.id, 2, 5.0, VersionParts()) == [stranger]
    assert await store.outbox.waiting_users() == [UID]
    batch = (await store.outbox.claim([UID], 10, 6.0))[UID]
    assert [(item.channel, item.version, item.queued_s) for item in batch.items] == [(channel.id, 2, 5.0)]
    assert await store.outbox.claim([UID], 10, 6.0) == {}


async def test_a_claimed_batch_keeps_its_id_and_content_until_it_is_done(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    batches = []
    for version in (2, 3):
        await store.outbox.enqueue([UID], channel.id, version, 5.0, VersionParts())
        batches.append((await store.outbox.claim([UID], 10, 6.0))[UID])
    assert (await store.outbox.in_flight([UID]))[UID] == batches
    await store.outbox.complete(acked=[(UID, batches[0].message_id)])
    assert [batch.acked for batch in (await store.outbox.in_flight([UID]))[UID]] == [True, False]
    await store.outbox.complete(done=[(UID, batches[0].message_id)])
    assert await store.outbox.waiting_users() == [UID]
    await store.outbox.complete(done=[(UID, batches[1].message_id)])
    assert await store.outbox.waiting_users() == []
    await store.outbox.enqueue([UID], channel.id, 4, 5.0, VersionParts())
    third = (await store.outbox.claim([UID], 10, 6.0))[UID]
    assert third.message_id not in {batch.message_id for batch in batches}


async def test_after_an_unsubscribe_nothing_of_that_channel_is_queued_or_in_flight(store: Store) -> None:
    gone, kept = await make_channel(store, "https://example.org/1"), await make_channel(store, "https://example.org/2")
    for channel in (gone, kept):
        await store.subscriptions.subscribe(ALICE, channel.id)
        await store.outbox.enqueue([UID], channel.id, 2, 5.0, VersionParts())
    flying = (await store.outbox.claim([UID], 10, 6.0))[UID]
    for channel in (gone, kept):
        await store.outbox.enqueue([UID], channel.id, 3, 5.0, VersionParts())
    await store.subscriptions.unsubscribe(ALICE, gone.id)
    (left,) = (await store.outbox.in_flight([UID]))[UID]
    assert left.message_id == flying.message_id
    assert [item.channel for item in left.items] == [kept.id]
    claimed = (await store.outbox.claim([UID], 10, 6.0))[UID]
    assert [item.channel for item in claimed.items] == [kept.id]
    assert await store.outbox.enqueue([UID], gone.id, 4, 5.0, VersionParts()) == [UID]


async def test_a_user_without_items_is_removed_from_the_waiting_list(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await store.outbox.enqueue([UID], channel.id, 2, 5.0, VersionParts())
    await store.subscriptions.unsubscribe(ALICE, channel.id)
    assert await store.outbox.claim([UID], 10, 6.0) == {}
    assert await store.outbox.waiting_users() == []


async def test_a_dead_letter_does_not_delay_other_batches(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await store.outbox.enqueue([UID], channel.id, 2, 5.0, VersionParts())
    batch = (await store.outbox.claim([UID], 10, 6.0))[UID]
    await store.outbox.move_to_dead_letters(UID, batch.message_id, "gone")
    assert await store.outbox.waiting_users() == []
    assert await store.redis.call("XLEN", keys.DEAD_LETTERS) == 1


async def test_a_wake_up_names_the_users_with_new_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.client.streams.MAX_BLOCK_S", 0.01)
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    nobody, place = await store.outbox.wait_for_wakeups("")
    assert nobody == []
    await store.outbox.enqueue([UID], channel.id, 2, 5.0, VersionParts())
    assert (await store.outbox.wait_for_wakeups(place))[0] == [UID]


async def test_a_rate_limit_counts_per_user_and_action(store: Store) -> None:
    allowed = [await store.users.count_use(ALICE, "command", 2, 60) for _ in range(3)]
    assert allowed == [True, True, False]
    assert await store.users.count_use(ALICE, "url", 2, 60)
    assert await store.users.count_use("bob@localhost", "command", 2, 60)
