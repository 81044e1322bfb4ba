"""Delivery from the outbox to a user's client: receipts, bounces, restarts, unsubscribing, and delivery windows."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from bots.cluster.partitions import ALL_PARTITIONS, AssignedUsers
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.xmpp.interface import XmppSessionLost
from service.clock import SystemClock
from service.embedded.private_prosody import PrivateProsody
from service.feeds.entries.version_parts import VersionParts
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import JumpingClock, Person, bounced, moved, serving, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.waiting import until, until_so


@pytest.mark.usefixtures("bot")
async def test_entries_arrive_in_order_and_receipts_complete_them(person: Person, store: Store) -> None:
    alice = await person()
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await alice.say("status")
    for version, key in enumerate(("one", "two", "three"), start=1):
        await tell(store, [alice], channel, key, base=version)
    await alice.wait_for(lambda message: "Entry three" in message.body)
    told = "\n".join(message.body for message in alice.notifications)
    assert told.index("Entry one") < told.index("Entry two") < told.index("Entry three")
    assert alice.notifications[0].body.startswith("*A feed*\nEntry one\nhttps://example.org/one")
    assert alice.notifications[0].id.startswith(user_id(alice.jid)), "the batch's own id, which a resend would keep"
    assert (await store.users.get(alice.jid)).receipts, "learnt from the first receipt"
    await _outbox_is_empty(store)


@pytest.mark.usefixtures("bot")
async def test_a_client_that_reads_nothing_delays_nobody_else(person: Person, store: Store) -> None:
    slow, quick = await asyncio.gather(person(), person())
    channel = await make_channel(store)
    for each in (slow, quick):
        await store.subscriptions.subscribe(each.jid, channel.id)
        await each.say("status")
    transport: Any = slow._xmpp.transport
    transport.pause_reading()
    for version in (1, 2, 3):
        await tell(store, [slow, quick], channel, f"number {version}", base=version)
    await quick.wait_for(lambda message: "Entry number 3" in message.body)
    assert not slow.notifications
    transport.resume_reading()
    await slow.wait_for(lambda message: "Entry number 3" in message.body)
    await _outbox_is_empty(store)


async def test_a_user_who_bounces_for_14_days_is_suspended_until_they_write(
    settings: Settings, store: Store, prosody: PrivateProsody
) -> None:
    name, clock = f"gone-{secrets.token_hex(4)}", JumpingClock()
    gone = ChatClient(f"{name}@localhost", "pw", "127.0.0.1", prosody.c2s_port, settings.xmpp_jid)
    uid, channel = user_id(gone.jid), await make_channel(store)
    await store.subscriptions.subscribe(gone.jid, channel.id)
    await store.users.mark_welcomed(gone.jid)

    async def is_suspended() -> bool:
        return (await store.users.get(gone.jid)).unreachable

    async with serving(settings, store, clock):
        for days, key in enumerate(("one", "two", "three"), start=1):
            with capture_logs() as logs:
                await tell(store, [gone], channel, key, base=days)
                await until_so(lambda: bounced(logs, uid), "it comes back")
            assert not await is_suspended()
            clock.ahead_s = days * 6 * 86_400.0
        await tell(store, [gone], channel, "four", base=4)
        await until(is_suspended, "the user is suspended")
        await _outbox_is_empty(store)
        await tell(store, [gone], channel, "five", base=5)
        await _outbox_is_empty(store)
        await prosody.register(name, "pw")
        try:
            await gone.start()
            assert (await gone.say("list")).startswith("Welcome back!")
            told = await gone.wait_for(lambda message: "Entry five" in message.body)
            for key in ("one", "two", "three", "four"):
                assert f"Entry {key}" in told.body
        finally:
            await gone.stop()


async def test_entries_of_several_channels_are_coalesced_into_one_message(
    store: Store, person: Person, settings: Settings
) -> None:
    alice = await person()
    channels = [await make_channel(store, f"https://example.org/{i}") for i in range(3)]
    for channel in channels:
        await store.subscriptions.subscribe(alice.jid, channel.id)
        await tell(store, [alice], channel, "new")
    async with serving(settings, store):
        message = await alice.wait_for(lambda message: bool(message.body))
    assert message.body.count("Entry new") == 3


@pytest.mark.usefixtures("bot")
async def test_nothing_is_sent_after_an_unsubscribe_is_answered(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await make_channel(store)
    for client in (alice, bob):
        await store.subscriptions.subscribe(client.jid, channel.id)
    await alice.say("status")
    publishing = asyncio.create_task(_publish_versions(store, [alice, bob], 30, channel.id))
    await alice.wait_for(lambda message: "Entry" in message.body)
    answer = await alice.say("unsubscribe #1")
    assert answer.startswith("Unsubscribed")
    place = [message.body for message in alice.received].index(answer)
    await publishing
    await bob.wait_for(lambda message: "Entry k30" in message.body)
    assert not [message for message in alice.received[place:] if "Entry" in message.body]


@pytest.mark.usefixtures("bot")
async def test_without_receipts_the_servers_ack_completes_a_batch(
    prosody: PrivateProsody, settings: Settings, store: Store, login: str
) -> None:
    offline = await prosody.register(f"offline-{login}", "pw")
    channel = await make_channel(store)
    await store.subscriptions.subscribe(offline, channel.id)
    client = ChatClient(offline, "pw", "127.0.0.1", prosody.c2s_port, settings.xmpp_jid)
    await tell(store, [client], channel, "kept")
    await _outbox_is_empty(store)
    try:
        await client.start()
        assert "Entry kept" in (await client.wait_for(lambda message: bool(message.body))).body, "the server kept it"
    finally:
        await client.stop()


@pytest.mark.usefixtures("bot")
async def test_a_bounced_batch_backs_off_and_delays_nobody_else(person: Person, store: Store) -> None:
    alice = await person()
    channel = await make_channel(store)
    nobody = f"nobody@{alice.jid.partition('@')[2]}"
    uid = user_id(nobody)
    for jid in (nobody, alice.jid):
        await store.subscriptions.subscribe(jid, channel.id)
    delta = await tell(store, [], channel, "new")
    await store.outbox.enqueue([uid], channel.id, delta.version, 2_000.0, VersionParts())

    async def flying() -> list[bool]:
        return [batch.acked for batch in (await store.outbox.in_flight([uid]))[uid]]

    await until(flying, "nobody's batch is claimed")
    for version in (2, 3):
        await tell(store, [alice], channel, f"k{version}", base=version)
        await alice.wait_for(lambda message, key=f"Entry k{version}": key in message.body)  # type: ignore[misc] # a lambda's default has no type
    assert await flying() == [False], "kept for a later try"


async def test_nothing_is_lost_when_the_server_is_killed(
    own_prosody: PrivateProsody, settings: Settings, store: Store
) -> None:
    mine = await moved(settings, own_prosody)
    jid = await own_prosody.register("alice", "pw")
    channel = await make_channel(store)
    await store.subscriptions.subscribe(jid, channel.id)
    alice = ChatClient(jid, "pw", "127.0.0.1", own_prosody.c2s_port, mine.xmpp_jid)
    await own_prosody.start()
    try:
        await alice.start()
        async with serving(mine, store) as bot:
            await alice.say("status")
            await tell(store, [alice], channel, "before")
            await alice.wait_for(lambda message: "Entry before" in message.body)
            await _outbox_is_empty(store)
            await own_prosody.stop()
            await until_so(lambda: not bot.connection.connected.is_set(), "the bot notices")
            await tell(store, [alice], channel, "meanwhile", base=2)
            await own_prosody.start()
            await alice.wait_for(lambda message: "Entry meanwhile" in message.body, 30)
            assert len([m for m in alice.unique if "Entry meanwhile" in m.body]) == 1
            await _outbox_is_empty(store)
    finally:
        await alice.stop()
        await own_prosody.stop()


async def _publish_versions(store: Store, people: list[ChatClient], count: int, cid: str) -> None:
    channel = await store.channels.get(cid)
    assert channel is not None
    for version in range(1, count + 1):
        await tell(store, people, channel, f"k{version}", base=version)


async def _outbox_is_empty(store: Store) -> None:
    async def empty() -> bool:
        return not await store.outbox.count_waiting()

    await until(empty, "everything is finished")


class _FailingOnce:
    """A sender that loses its connection at the first send, and resumes the session."""

    address = session_jid = "feeds.localhost"
    is_account = False

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.tried: list[str] = []
        self.rooms: set[str] = set()

    async def send(self, stanzas: Sequence[str]) -> None:
        self.tried += stanzas
        if len(self.tried) == 1:
            raise XmppSessionLost("The XMPP connection is gone.")

    def send_unconfirmed(self, stanza: str) -> None:
        """Drop the stanza."""


@pytest.mark.parametrize("login", ["component"])
async def test_a_failed_send_is_repeated_in_a_resumed_session(store: Store) -> None:
    link = _FailingOnce()
    clock = SystemClock()
    assigned_users = AssignedUsers(store.home_addresses, clock, link.address)
    assigned_users.assign(ALL_PARTITIONS)
    delivery = OutboxConsumer(store, link, clock, assigned_users, 5.0)
    alice = ChatClient("alice@localhost", "", "127.0.0.1", 0, link.address)
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await tell(store, [alice], channel, "new")
    delivering = asyncio.create_task(delivery.run())
    delivery.on_session_started()
    await _outbox_is_empty(store)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    assert len(link.tried) == 2
    assert len(set(link.tried)) == 1, "the same message, under the same id"


@pytest.mark.usefixtures("bot")
async def test_quiet_hours_defer_messages_until_they_are_off(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channels = [await make_channel(store, f"https://example.org/{i}") for i in range(2)]
    for client in (alice, bob):
        for channel in channels:
            await store.subscriptions.subscribe(client.jid, channel.id)
    assert "Your quiet hours last all day, every day" in await alice.say("quiet 0-24")
    for channel in channels:
        await tell(store, [alice, bob], channel, "held")
    await bob.wait_for(lambda message: "Entry held" in message.body)
    assert not alice.notifications
    assert "right away" in await alice.say("quiet off")
    message = await alice.wait_for(lambda message: "Entry held" in message.body)
    assert message.body.count("Entry held") == 2
    await _outbox_is_empty(store)


async def test_a_new_process_respects_digests(store: Store, person: Person, settings: Settings) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await make_channel(store)
    for client in (alice, bob):
        await store.subscriptions.subscribe(client.jid, channel.id)
    async with serving(settings, store):
        assert "every Monday at 08:00" in await alice.say("digest weekly")
    await tell(store, [alice, bob], channel, "weekly")
    async with serving(settings, store):
        await bob.wait_for(lambda message: "Entry weekly" in message.body)
        assert "right away" in await alice.say("digest off")
        await alice.wait_for(lambda message: "Entry weekly" in message.body)
