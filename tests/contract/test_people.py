"""Users as admins see and manage them, and dead letters."""

import pytest

from service.discovery.queries.query_parser import parse_watch
from service.errors import UserError
from service.feeds.entries.version_parts import VersionParts
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import Batch, OutboxItem
from service.store.people.bot_rooms import MAX_MESSAGE_IDS
from tests.support.channels import make_channel

ADA = "ada@example.org"
BOB = "bob@example.org"
TEA_TIME = parse_watch('"tea time"')


async def _claimed(store: Store, uid: str) -> Batch | None:
    return (await store.outbox.claim([uid], 10, 5.0)).get(uid)


async def test_a_person_is_shown_with_their_data(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ADA, channel.id)
    await store.saved_searches.add(ADA, TEA_TIME, '"tea time"', 5)
    await store.users.mark_welcomed(ADA)
    await store.users.mark_receipts([keys.user_id(ADA)])
    uid = keys.user_id(ADA)
    await store.outbox.enqueue([uid], channel.id, 2, 1.0, VersionParts(news=()))
    assert await store.people.ids() == [uid]
    person = await store.people.get(uid)
    assert person is not None
    assert (person.jid, person.subscriptions, person.watches, person.queued) == (ADA, 1, 1, 1)
    assert (person.in_flight, person.suspended, person.most_subscriptions, person.receipts) == (0, False, None, True)
    assert person.waiting_since_s is not None
    assert await store.people.get(keys.user_id(BOB)) is None


async def test_nothing_is_queued_for_a_suspended_user(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ADA, channel.id)
    uid = keys.user_id(ADA)
    assert await store.people.set_suspended(uid, suspended=True)
    assert (await store.users.get(ADA)).suspended
    await store.outbox.enqueue([uid], channel.id, 2, 1.0, VersionParts(news=()))
    assert await _claimed(store, uid) is None
    assert await store.outbox.waiting_users() == []
    assert await store.people.set_suspended(uid, suspended=False)
    assert await _claimed(store, uid) is None
    await store.outbox.enqueue([uid], channel.id, 3, 1.0, VersionParts(news=()))
    batch = await _claimed(store, uid)
    assert batch is not None
    assert [item.version for item in batch.items] == [3]


async def test_subscription_limits_are_set_and_reset(store: Store) -> None:
    await store.users.mark_welcomed(ADA)
    uid = keys.user_id(ADA)
    assert await store.people.set_max_subscriptions(uid, 0)
    assert (await store.users.get(ADA)).most_subscriptions == 0
    assert await store.people.set_max_subscriptions(uid, None)
    assert (await store.users.get(ADA)).most_subscriptions is None
    assert not await store.people.set_max_subscriptions(keys.user_id(BOB), 3)
    assert not await store.people.set_suspended(keys.user_id(BOB), suspended=True)
    assert (await store.users.get(BOB)).suspended is False


async def test_an_erased_person_leaves_no_data(store: Store) -> None:
    channel = await make_channel(store)
    for jid in (ADA, BOB):
        await store.subscriptions.subscribe(jid, channel.id)
        await store.saved_searches.add(jid, TEA_TIME, '"tea time"', 5)
        await store.users.count_use(jid, "command", 5, 60.0)
        uid = keys.user_id(jid)
        for version in (2, 3):
            await store.outbox.enqueue([uid], channel.id, version, 1.0, VersionParts(news=((0, (b"x",)),)))
            batch = await _claimed(store, uid)
            assert batch is not None
            await (
                store.outbox.move_to_dead_letters(uid, batch.message_id, "gone")
                if version == 2
                else store.outbox.complete(acked=[(uid, batch.message_id)])
            )
    uid = keys.user_id(ADA)
    assert await store.people.erase(uid)
    assert not await store.people.erase(uid)
    assert await store.people.ids() == [keys.user_id(BOB)]
    assert await store.subscriptions.count(channel.id) == 1
    assert [letter.user for letter in (await store.dead_letters.page())[0]] == [keys.user_id(BOB)]
    assert len((await store.saved_searches.load())[1]) == 1
    assert await store.users.jids([uid]) == [""]
    assert await store.users.get(ADA) == type(await store.users.get(ADA))(ADA)


async def test_a_requeued_dead_letter_is_delivered_once_without_ended_subscriptions(store: Store) -> None:
    kept, ended = await make_channel(store), await make_channel(store, "https://example.net/feed")
    uid = keys.user_id(ADA)
    for channel in (kept, ended):
        await store.subscriptions.subscribe(ADA, channel.id)
        await store.outbox.enqueue([uid], channel.id, 2, 1.0, VersionParts(news=()))
    batch = await _claimed(store, uid)
    assert batch is not None
    await store.outbox.move_to_dead_letters(uid, batch.message_id, "bounced for 14 days")
    ((letter,), following) = await store.dead_letters.page()
    assert (letter.user, letter.message_id, letter.why, following) == (
        uid,
        batch.message_id,
        "bounced for 14 days",
        "",
    )
    assert letter.items == batch.items
    await store.subscriptions.unsubscribe(ADA, ended.id)
    # A console that dies before it takes the letter off the list has it revived again.
    entry = await store.redis.call("XRANGE", keys.DEAD_LETTERS, letter.id, letter.id)
    assert await store.dead_letters.requeue(letter.id)
    fields = [part for pair in entry[0][1].items() for part in pair]
    await store.redis.call("DEL", keys.DEAD_LETTERS)
    await store.redis.call("XADD", keys.DEAD_LETTERS, letter.id, *fields)
    assert await store.dead_letters.requeue(letter.id)
    assert await store.outbox.waiting_users() == [uid]
    again = await _claimed(store, uid)
    assert again is not None
    assert again.items == (OutboxItem(kept.id, 2, 1.0),)
    assert not await store.dead_letters.requeue(letter.id)
    assert await store.dead_letters.count() == 0


async def test_dead_letters_are_paged_newest_first_and_can_be_dropped(store: Store) -> None:
    channel = await make_channel(store)
    uid = keys.user_id(ADA)
    await store.subscriptions.subscribe(ADA, channel.id)
    for version in (2, 3, 4):
        await store.outbox.enqueue([uid], channel.id, version, 1.0, VersionParts(news=()))
        batch = await _claimed(store, uid)
        assert batch is not None
        await store.outbox.move_to_dead_letters(uid, batch.message_id, str(version))
    newest, following = await store.dead_letters.page("", 2)
    assert [letter.why for letter in newest] == ["4", "3"]
    rest, end = await store.dead_letters.page(following, 2)
    assert ([letter.why for letter in rest], end) == (["2"], "")
    assert await store.dead_letters.drop(rest[0].id)
    assert not await store.dead_letters.drop(rest[0].id)
    assert await store.dead_letters.count() == 2


async def test_a_drained_worker_stays_out_until_it_is_restored(store: Store) -> None:
    node = await store.ring.join("w1", "", 60.0, lambda _: "a" * 40)
    other = await store.ring.join("w2", "", 60.0, lambda _: "b" * 40)
    assert not await store.ring.record_if_drained("w1")
    await store.ring.drain(node)
    assert [each.id for each in await store.ring.nodes()] == [other.id]
    assert await store.ring.record_if_drained("w1")
    assert not await store.ring.record_if_drained("w2")
    assert await store.ring.drained() == ["w1"]
    assert await store.ring.restore("w1")
    assert not await store.ring.restore("w1")
    assert not await store.ring.record_if_drained("w1")


MALFORMED: tuple[dict[str, bytes], ...] = (
    {"x": b"nothing that a letter has"},
    {"u": b"\xff" * 16, "m": b"\xff", "why": b"\xff", "items": b"\xff"},
    {"u": b"", "m": b"", "why": b"gone", "items": b"{}"},
    {"u": b"a" * 16, "m": b"m", "why": b"gone", "items": b'{"items": [["c", "two"]], "acked": 1, "at": "x"}'},
    {"u": b"a" * 16, "m": b"m", "why": b"gone", "items": b"nonsense"},
)


async def test_an_unreadable_dead_letter_hides_no_other(store: Store) -> None:
    channel, uid = await make_channel(store), keys.user_id(ADA)
    await store.subscriptions.subscribe(ADA, channel.id)
    for number, fields in enumerate(MALFORMED):
        await store.redis.call("XADD", keys.DEAD_LETTERS, "*", *(part for field in fields.items() for part in field))
        await store.outbox.enqueue([uid], channel.id, number + 2, 1.0, VersionParts(news=()))
        batch = await _claimed(store, uid)
        assert batch is not None
        await store.outbox.move_to_dead_letters(uid, batch.message_id, "gone")
    letters, _ = await store.dead_letters.page()
    assert [letter.readable for letter in letters] == [True, False] * len(MALFORMED)
    assert [letter.items[0].version for letter in letters if letter.readable] == [6, 5, 4, 3, 2]
    for letter in letters:
        if not letter.readable:
            with pytest.raises(UserError):
                await store.dead_letters.requeue(letter.id)
            assert await store.dead_letters.drop(letter.id)
    assert await store.dead_letters.count() == len(MALFORMED)
    assert await store.people.erase(uid), "who is forgotten takes theirs along, whatever else is there"


async def test_message_ids_assigned_by_a_room_are_stored(store: Store) -> None:
    room, other = "lounge@rooms.localhost", "library@rooms.localhost"
    for number in range(MAX_MESSAGE_IDS + 2):
        for _ in range(2):
            await store.rooms.record_message_id(room, f"theirs {number}", f"ours {number}")
    told = await store.rooms.message_ids([other, room])
    assert told[other] == {}
    assert list(told[room].items()) == [(f"theirs {n}", f"ours {n}") for n in range(2, MAX_MESSAGE_IDS + 2)]
    assert 0 < await store.redis.call("TTL", keys.room_message_ids(keys.user_id(room))) <= 30 * 86_400
