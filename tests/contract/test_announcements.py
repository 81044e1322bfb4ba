"""Announcements reach each recipient once, at their rate, and none after they were stopped or turned off."""

from unittest import mock

import msgspec
import pytest

from service.errors import StoreUnavailable
from service.model import UserId
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from service.store.delivery.announcements import Announcement, Audience
from service.store.delivery.outbox import ANNOUNCEMENTS
from service.users.user_settings import UserSettings
from tests.support.channels import make_channel

INTERVAL_S = 10.0


async def make_people(store: Store, count: int) -> list[str]:
    """Create users and return their JIDs."""
    jids = [f"p{number}@example.org" for number in range(count)]
    for jid in jids:
        await store.users.mark_welcomed(jid)
    return jids


async def start(store: Store, total: int, minutes: float = 1.0) -> Announcement:
    """Start an announcement to everybody at time 1,000."""
    uids = await store.announcements.find_recipients(Audience())
    assert len(uids) == total
    number = await store.announcements.reserve_number()
    announcement = Announcement(number, "Moved.", "all", "ada", 1_000.0, minutes, total, {"de": "Umgezogen."})
    assert await store.announcements.start(announcement, uids)
    assert not await store.announcements.start(announcement, uids)
    return announcement


async def queued(store: Store, jids: list[str]) -> list[int]:
    """Return how many announcements are in the outbox of each user."""
    queues = await store.outbox.queued_items({keys.user_id(jid): "" for jid in jids}, 100)
    return [sum(each.item.channel == ANNOUNCEMENTS for each in queue) for queue in queues]


async def test_an_announcement_is_queued_at_its_rate_once_for_each_recipient(store: Store) -> None:
    jids = await make_people(store, 12)
    await start(store, 12)
    counts = []
    for now_s in (1_000.0, 1_010.0, 1_010.0, 1_020.0, 1_030.0):
        await store.announcements.dispatch(now_s, INTERVAL_S)
        counts.append(sum(await queued(store, jids)))
    assert counts == [0, 2, 2, 4, 6]
    await store.announcements.dispatch(5_000.0, INTERVAL_S)
    assert sum(await queued(store, jids)) == 10, "after a pause the rate is doubled"
    for _ in range(3):
        await store.announcements.dispatch(5_000.0, INTERVAL_S)
    assert await queued(store, jids) == [1] * 12
    (progress,) = await store.announcements.latest()
    assert progress.remaining == 0
    assert not await store.redis.call("SMEMBERS", keys.RUNNING_ANNOUNCEMENTS)
    assert len(await store.outbox.waiting_users()) == 12


async def test_a_bot_killed_while_queueing_neither_loses_nor_repeats_an_announcement(store: Store) -> None:
    jids = await make_people(store, 4)
    await start(store, 4)
    call, failing = store.redis.call, True

    async def dies_before_removing(*command: str | bytes | float) -> object:
        if command[0] == "ZREM" and failing:
            raise StoreUnavailable("killed")
        return await call(*command)

    with mock.patch.object(store.redis, "call", dies_before_removing), pytest.raises(StoreUnavailable):
        await store.announcements.dispatch(1_060.0, 60.0)
    assert await queued(store, jids) == [1] * 4
    await store.announcements.dispatch(1_060.0, 60.0)
    await store.announcements.dispatch(1_060.0, 60.0)
    assert await queued(store, jids) == [1] * 4


async def test_a_stopped_announcement_is_queued_for_no_further_recipients(store: Store) -> None:
    jids = await make_people(store, 6)
    announcement = await start(store, 6)
    await store.announcements.dispatch(1_020.0, INTERVAL_S)
    before = sum(await queued(store, jids))
    assert 0 < before < 6
    assert await store.announcements.stop(announcement.number, 1_021.0)
    assert not await store.announcements.stop(announcement.number, 1_022.0)
    await store.announcements.dispatch(2_000.0, INTERVAL_S)
    assert sum(await queued(store, jids)) == before
    (progress,) = await store.announcements.latest()
    assert (progress.announcement.stopped_s, progress.announcement.stopped_at) == (1_021.0, before)


async def test_recipients_meet_all_conditions(store: Store) -> None:
    jids = await make_people(store, 6)
    german, off, suspended, blocked = jids[1], jids[2], jids[3], "eve@spam.example"
    await store.users.mark_welcomed(blocked)
    await store.users.set_user_settings(german, UserSettings(language="de"))
    await store.users.set_user_settings(off, UserSettings(announcements=False))
    await store.people.set_suspended(keys.user_id(suspended), suspended=True)
    await store.blocked_user_domains.add("spam.example", HostBlock("ada", 1.0))
    channel = await make_channel(store)
    await store.subscriptions.subscribe(jids[4], channel.id)
    everybody = {jids[0], german, jids[4], jids[5]}

    async def found(audience: Audience) -> set[str]:
        return set(await store.users.jids(await store.announcements.find_recipients(audience)))

    assert await found(Audience()) == everybody
    assert await found(Audience(language="de")) == {german}
    assert await found(Audience(language="en")) == everybody - {german}
    assert await found(Audience(channels=frozenset({channel.id}))) == {jids[4]}
    assert await found(Audience(jids=frozenset({jids[0], off}))) == {jids[0]}
    rooms = frozenset({jids[5]})
    assert await found(Audience(kind="rooms", rooms=rooms)) == {jids[5]}
    assert await found(Audience(kind="people", rooms=rooms)) == everybody - {jids[5]}


async def test_recipients_erased_or_opted_out_after_the_start_get_no_announcement(store: Store) -> None:
    jids = await make_people(store, 3)
    await start(store, 3)
    await store.erasure.erase(jids[0])
    await store.users.set_user_settings(jids[1], UserSettings(announcements=False))
    for _ in range(3):
        await store.announcements.dispatch(1_060.0, 60.0)
    assert await queued(store, jids) == [0, 0, 1]
    assert await store.redis.call("EXISTS", keys.user(keys.user_id(jids[0]))) == 0


async def test_an_announcement_is_a_batch_of_its_own(store: Store) -> None:
    (jid,) = await make_people(store, 1)
    uid: UserId = keys.user_id(jid)
    announcement = await start(store, 1)
    await store.announcements.dispatch(1_060.0, 60.0)
    batch = (await store.outbox.claim([uid], 60, 1_061.0))[uid]
    assert [(item.channel, item.version) for item in batch.items] == [(ANNOUNCEMENTS, announcement.number)]
    await store.outbox.move_to_dead_letters(uid, batch.message_id, "a test")
    ((letter,), _) = await store.dead_letters.page()
    assert await store.dead_letters.requeue(letter.id)
    assert await queued(store, [jid]) == [1]
    assert announcement.text_in("de-AT") == "Umgezogen."
    assert msgspec.structs.replace(announcement, translations={}).text_in("de") == "Moved."
