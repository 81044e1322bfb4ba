"""Webhooks and addresses of feeds: queues that follow the outbox, dead letters, and addresses that can be revoked."""

import pytest

from service.errors import UserError
from service.feeds.entries.version_parts import VersionParts
from service.model import Channel
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import MatchedSearch, SavedSearchHit
from service.store.delivery.webhooks import WebhookState
from tests.support.channels import make_channel

ALICE, BOB = "alice@localhost", "bob@localhost"
UID, OTHER = keys.user_id(ALICE), keys.user_id(BOB)
URL = "https://example.org/hook"


async def followed(store: Store, *people: str) -> Channel:
    channel = await make_channel(store)
    for jid in people:
        await store.subscriptions.subscribe(jid, channel.id)
    return channel


async def waiting(store: Store, uid: str = UID) -> list[tuple[int, bool]]:
    """Return (version, is an edit) of the items that wait for a webhook."""
    items = await store.webhooks.oldest_items(uid, 10_000)
    return [(queued.item.version, queued.item.edits) for queued in items]


async def test_what_is_queued_in_the_outbox_is_queued_for_the_webhook_once(store: Store) -> None:
    channel = await followed(store, ALICE, BOB)
    await store.webhooks.create(UID, URL)
    for version, parts in ((2, VersionParts()), (3, VersionParts((), ())), (3, VersionParts((), ()))):
        await store.outbox.enqueue([UID, OTHER], channel.id, version, 5.0, parts)
    assert await waiting(store) == [(2, False), (3, False), (3, True)]
    assert await waiting(store, OTHER) == []
    assert await store.webhooks.queue_lengths([UID, OTHER]) == [3, 0]
    assert [len(items) for items in await store.outbox.queued_items({UID: "", OTHER: ""}, 9)] == [3, 3]


async def test_matches_of_saved_searches_are_queued_for_the_webhook(store: Store) -> None:
    channel = await make_channel(store)
    await store.users.mark_welcomed(ALICE)
    await store.webhooks.create(UID, URL)
    await store.redis.call("HSET", keys.saved_searches(UID), 1, b"")
    hit = SavedSearchHit(UID, (MatchedSearch(1, "python", (1,)),))
    await store.outbox.enqueue_hits(channel.id, 2, 5.0, [hit], news=(), changes=2)
    (queued,) = await store.webhooks.oldest_items(UID)
    assert queued.item.omitted == (0,)
    assert queued.item.matches == hit.matches


async def test_what_a_pause_withholds_is_queued_for_the_webhook_when_it_ends(store: Store) -> None:
    channel = await followed(store, ALICE)
    await store.webhooks.create(UID, URL)
    await store.pauses.pause(ALICE, [channel.id])
    for version in (2, 3):
        await store.outbox.enqueue([UID], channel.id, version, 5.0, VersionParts())
    assert await waiting(store) == []
    await store.pauses.resume(ALICE, [channel.id])
    (queued,) = await store.webhooks.oldest_items(UID)
    assert (queued.item.after_version, queued.item.version) == (1, 3)


async def test_nothing_of_an_ended_subscription_waits_for_the_webhook(store: Store) -> None:
    channel, other = await followed(store, ALICE), await make_channel(store, "https://example.org/other")
    await store.subscriptions.subscribe(ALICE, other.id)
    await store.webhooks.create(UID, URL)
    for each in (channel, other):
        await store.outbox.enqueue([UID], each.id, 2, 5.0, VersionParts())
    await store.subscriptions.unsubscribe(ALICE, channel.id)
    assert [queued.item.channel for queued in await store.webhooks.oldest_items(UID, 9)] == [other.id]


async def test_the_queue_of_a_webhook_is_bounded(store: Store) -> None:
    channel = await followed(store, ALICE)
    await store.webhooks.create(UID, URL)
    for version in range(2, 1_302):
        await store.outbox.enqueue([UID], channel.id, version, 5.0, VersionParts())
    left = await waiting(store)
    assert 1_000 <= len(left) < 1_200
    assert left[-1] == (1_301, False), "the oldest are dropped"


async def test_a_new_webhook_starts_with_another_secret_and_an_empty_queue(store: Store) -> None:
    channel = await followed(store, ALICE)
    first = await store.webhooks.create(UID, URL)
    await store.outbox.enqueue([UID], channel.id, 2, 5.0, VersionParts())
    webhook = await store.webhooks.get(UID)
    assert webhook is not None
    await store.webhooks.record(UID, webhook, WebhookState(1, 5.0, 6.0, "It failed."))
    assert await store.webhooks.create(UID, URL) != first
    webhook = await store.webhooks.get(UID)
    assert webhook is not None
    assert (webhook.state, await waiting(store)) == (WebhookState(), [])


async def test_a_late_result_does_not_create_a_deleted_webhook_again(store: Store) -> None:
    await store.webhooks.create(UID, URL)
    webhook = await store.webhooks.get(UID)
    assert webhook is not None
    await store.webhooks.delete(UID)
    await store.webhooks.record(UID, webhook, WebhookState(1, 5.0, 6.0, "It failed."))
    assert await store.webhooks.get(UID) is None
    assert await store.webhooks.users() == set()


async def test_items_that_are_given_up_are_dead_letters_that_return_to_the_webhook(store: Store) -> None:
    channel = await followed(store, ALICE)
    await store.webhooks.create(UID, URL)
    for version in range(2, 72):
        await store.outbox.enqueue([UID], channel.id, version, 5.0, VersionParts())
    now_s = await store.redis.time_s()
    assert not await store.webhooks.move_to_dead_letters(UID, now_s - 60, "It failed.")
    assert await store.webhooks.move_to_dead_letters(UID, now_s + 60, "It failed.")
    assert await waiting(store) == []
    letters, _ = await store.dead_letters.page()
    assert [(letter.user, letter.why, len(letter.items)) for letter in letters] == [
        (UID, "It failed.", 10),
        (UID, "It failed.", 60),
    ]
    await store.redis.call("DEL", keys.outbox(UID))
    assert await store.dead_letters.requeue(letters[0].id)
    assert await waiting(store) == [(version, False) for version in range(62, 72)]
    assert await store.outbox.queued_items({UID: ""}, 9) == [[]], "it has reached the chat"
    await store.webhooks.delete(UID)
    with pytest.raises(UserError, match="no webhook"):
        await store.dead_letters.requeue(letters[1].id)


async def test_a_token_of_feeds_is_valid_until_it_is_revoked(store: Store) -> None:
    token = await store.feed_links.token(UID)
    assert await store.feed_links.token(UID) == token
    assert await store.feed_links.token(OTHER) != token
    assert await store.feed_links.owner(token) == UID
    assert await store.feed_links.owner("x") is None
    await store.feed_links.revoke(UID)
    assert await store.feed_links.owner(token) is None
    assert await store.feed_links.token(UID) != token
    assert await store.feed_links.owner(token) is None
