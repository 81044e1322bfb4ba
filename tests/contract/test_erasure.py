"""Erasure of a user: only restrictions, usage counts and the fact of the erasure remain, also after failures."""

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator

from service.discovery.queries.query_parser import parse_watch
from service.discovery.queries.saved_searches import SearchableEntry
from service.errors import LimitReached, StoreUnavailable
from service.feeds.entries.version_parts import VersionParts
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.model import Channel, Entry
from service.store import Store
from service.store.backup.export import scan_keys
from service.store.client import keys
from service.store.delivery.outbox import MessageId
from service.store.directory.saved_search_store import SavedSearchMatcher
from service.store.people.erasure import RESTRICTIONS_KEPT_DAYS
from service.users.preferences import FOR_ALL, Preferences
from service.users.user_settings import UserSettings
from tests.contract.test_subscriptions import DyingLink
from tests.support.channels import make_channel

ALICE, BOB = "alice@localhost", "bob@localhost"
UID, OTHER = keys.user_id(ALICE), keys.user_id(BOB)

_READ = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1),
    b"list": ("LRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}


async def live(store: Store, jid: str, channels: list[Channel]) -> MessageId:
    """Do everything that stores data about a user; return the id of a message in flight."""
    uid = keys.user_id(jid)
    await store.users.mark_welcomed(jid)
    await store.users.mark_receipts([keys.user_id(jid)])
    await store.feed_links.token(uid)
    await store.webhooks.create(uid, "https://example.org/hook")
    await store.users.set_user_settings(jid, UserSettings("Europe/Berlin"))
    for what in keys.USAGE_KINDS:
        await store.users.count_use(jid, what, 5, 3600.0)
    for channel in channels:
        await store.subscriptions.subscribe(jid, channel.id)
    for expression in ("tag=python", '"brown fox"', "/v[0-9]/"):
        await store.saved_searches.add(jid, parse_watch(expression), expression, 9)
    await store.rooms.record_message_id(jid, "theirs", "ours")
    await store.user_imports.add(
        jid, OpmlDocument((OpmlSubscription("https://example.org/x"),), ("?",)), "bot@localhost"
    )
    await store.preferences.put(jid, FOR_ALL, Preferences(muted=True))
    dead, flying = [await tell(store, uid, channels[0], version) for version in (2, 3)]
    await store.outbox.move_to_dead_letters(uid, dead, "nobody is there")
    await store.outbox.complete(acked=[(uid, flying)])
    await store.outbox.enqueue([uid], channels[0].id, 4, 5.0, VersionParts())
    await store.pauses.pause(jid, [channels[1].id], saved_searches=True)
    return flying


async def tell(store: Store, uid: str, channel: Channel, version: int) -> MessageId:
    await store.outbox.enqueue([uid], channel.id, version, 5.0, VersionParts())
    return (await store.outbox.claim([uid], 20, 6.0))[uid].message_id


async def everything(store: Store) -> AsyncIterator[tuple[str, str]]:
    """Yield every key with its whole value."""
    for key in {name async for names in scan_keys(store.redis, keys.ALL_KEYS) for name in names}:
        verb, *rest = _READ[await store.redis.call("TYPE", key)]
        yield key, repr(await store.redis.call(verb, key, *rest))


async def traces(store: Store, jid: str) -> list[str]:
    """Return the keys that contain a user's id or JID in any form, except counters and the list of erasures."""
    uid = keys.user_id(jid)
    raw = repr(urlsafe_b64decode(uid))[2:-1]
    counters = {keys.usage_count(uid, what) for what in keys.USAGE_KINDS}
    found = [key async for key, held in everything(store) if any(name in key + held for name in (uid, jid, raw))]
    assert all([await store.redis.call("TTL", key) > 0 for key in counters.intersection(found)])
    return [key for key in found if key not in {*counters, keys.ERASED_USERS}]


async def test_erasure_deletes_all_data_of_the_user_and_no_data_of_others(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(3)]
    await live(store, ALICE, channels)
    flying = await live(store, BOB, channels)
    assert len(await traces(store, ALICE)) > 10, "what is looked for is found while it is there"
    await store.erasure.erase(ALICE)
    assert await traces(store, ALICE) == []
    assert len(await store.subscriptions.of_user(BOB)) == 3
    assert len(await store.saved_searches.of_user(BOB)) == 3
    assert [batch.message_id for batch in (await store.outbox.in_flight([OTHER]))[OTHER]] == [flying]
    assert await store.outbox.waiting_users() == [OTHER]
    assert await store.channel_index.count([channel.id for channel in channels]) == [1, 1, 1]


async def test_an_erasure_interrupted_at_any_step_is_completed(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(2)]
    for survives in range(2, 100):  # the erasure begins with the second step
        await live(store, ALICE, channels)
        died = False
        try:
            await Store(DyingLink(store.redis, survives)).erasure.erase(ALICE)
        except StoreUnavailable:
            died = True
        assert await store.erasure.resume() == died
        assert await traces(store, ALICE) == []
        if not died:
            return
    raise AssertionError("it never got through")


async def test_old_changes_do_not_affect_an_erased_user_who_returns(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(2)]
    await live(store, ALICE, channels)
    (late,) = [held.seq for held in await store.subscriptions.of_user(ALICE) if held.channel == channels[1].id]
    await store.erasure.erase(ALICE)
    again, new = await store.subscriptions.subscribe(ALICE, channels[1].id)
    assert (new, again.number) == (True, 1)
    await store.channel_index.remove(channels[1].id, [(UID, late + 1)])
    assert await store.subscriptions.count(channels[1].id) == 1
    assert not (await store.users.get(ALICE)).welcomed
    assert await store.outbox.enqueue([UID], channels[1].id, 2, 5.0, VersionParts()) == []


async def test_a_late_receipt_does_not_create_an_erased_user_again(store: Store) -> None:
    await store.users.mark_receipts([UID])
    assert await traces(store, ALICE) == []


async def test_saved_searches_of_an_erased_user_are_not_matched(store: Store) -> None:
    matcher = SavedSearchMatcher(store.saved_searches)
    await store.saved_searches.add(ALICE, parse_watch("tag=python"), "tag=python", 9)
    kept = await store.saved_searches.add(BOB, parse_watch("tag=python"), "tag=python", 9)
    subject = SearchableEntry(Entry("1", "A title"), ("tag=python",))
    assert len((await matcher.match([subject]))[0]) == 2
    await store.erasure.erase(ALICE)
    assert await matcher.match([subject]) == [{kept.id}]


async def test_restrictions_and_usage_counts_outlive_erasure(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(2)]
    await live(store, ALICE, channels)
    assert await store.people.set_suspended(UID, suspended=True)
    assert await store.people.set_max_subscriptions(UID, 3)
    assert await store.users.count_use(ALICE, "url", 2, 3600.0)
    await store.erasure.erase(ALICE)
    known = await store.users.get(ALICE)
    assert (known.suspended, known.most_subscriptions, known.welcomed) == (True, 3, False)
    assert not await store.users.count_use(ALICE, "url", 2, 3600.0), "the counter goes on"
    assert {*await traces(store, ALICE)} <= {keys.ERASED_USERS_WITH_RESTRICTIONS, keys.restrictions(UID)}
    assert await store.people.ids() == [UID]
    held = await store.redis.call("HGETALL", keys.restrictions(UID))
    assert held == {b"jid": ALICE.encode(), b"suspended": b"1", b"most_subscriptions": b"3"}
    assert 0 < await store.redis.call("TTL", keys.restrictions(UID)) <= RESTRICTIONS_KEPT_DAYS * 86_400


async def test_an_admin_sees_and_removes_restrictions_of_an_erased_user(store: Store) -> None:
    await store.users.mark_welcomed(ALICE)
    await store.people.set_suspended(UID, suspended=True)
    await store.erasure.erase(ALICE)
    assert await store.people.ids() == [UID]
    person = await store.people.get(UID)
    assert person is not None
    assert (person.jid, person.suspended, person.subscriptions) == (ALICE, True, 0)
    assert await store.people.set_suspended(UID, suspended=False)
    assert not (await store.users.get(ALICE)).suspended
    assert await store.people.get(UID) is None


async def test_erasure_by_an_admin_is_complete(store: Store) -> None:
    for known in (True, False):
        await store.users.mark_welcomed(ALICE)
        await store.people.set_suspended(UID, suspended=True)
        await store.users.count_use(ALICE, "url", 2, 3600.0)
        if not known:
            await store.erasure.erase(ALICE)
        assert await store.people.erase(UID)
        assert await traces(store, ALICE) == []
        assert await store.redis.call("EXISTS", keys.usage_count(UID, "url")) == 0


async def test_restrictions_of_a_returned_user_do_not_expire(store: Store) -> None:
    await store.users.mark_welcomed(ALICE)
    await store.people.set_max_subscriptions(UID, 3)
    await store.erasure.erase(ALICE)
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    assert await store.redis.call("TTL", keys.restrictions(UID)) == -1
    await store.erasure.erase(ALICE)
    assert await store.redis.call("TTL", keys.restrictions(UID)) > 0
    await store.users.mark_welcomed(ALICE)
    assert await store.redis.call("TTL", keys.restrictions(UID)) == -1
    assert await store.redis.call("ZCARD", keys.ERASED_USERS_WITH_RESTRICTIONS) == 0
    assert (await store.users.get(ALICE)).most_subscriptions == 3


async def test_expired_restrictions_are_not_listed(store: Store) -> None:
    await store.users.mark_welcomed(ALICE)
    await store.people.set_suspended(UID, suspended=True)
    await store.erasure.erase(ALICE)
    await store.redis.call("DEL", keys.restrictions(UID))
    await store.redis.call("ZADD", keys.ERASED_USERS_WITH_RESTRICTIONS, 1, UID)
    assert await store.people.ids() == []
    await store.users.mark_welcomed(BOB)
    await store.erasure.erase(BOB)
    assert await store.redis.call("ZCARD", keys.ERASED_USERS_WITH_RESTRICTIONS) == 0


async def test_concurrent_requests_do_not_exceed_the_subscription_limit(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(8)]
    asked = [store.subscriptions.subscribe(ALICE, channel.id, 5) for channel in channels]
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in ended].count(LimitReached) == 3
    assert len(await store.subscriptions.of_user(ALICE)) == 5
    await store.people.set_max_subscriptions(UID, 6)
    (left, *_) = [channel for channel, how in zip(channels, ended, strict=True) if isinstance(how, LimitReached)]
    assert (await store.subscriptions.subscribe(ALICE, left.id, 5))[1], "what an admin set counts"
    assert not (await store.subscriptions.subscribe(ALICE, left.id, 5))[1], "who has it may ask again"
