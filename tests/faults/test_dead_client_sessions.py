"""Sessions of dead clients that their server keeps for resumption (XEP-0198): no message is lost in them."""

import asyncio
import contextlib
import datetime as dt
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bots.delivery.batch_sender import MAX_SENDS
from bots.delivery.resend_policy import RECEIPT_TIMEOUT_AT_RETURN_S, RECEIPT_TIMEOUT_S
from service.embedded.private_prosody import PrivateProsody
from service.embedded.sample_publisher import PublishedEntry
from service.feeds.entries.version_parts import VersionParts
from service.model import Change, Channel, Entry
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.outbox import Batch
from tests.support.bot_in_process import JumpingClock, Server, knows_receipts, logging_in, reach, serving
from tests.support.bot_process import bots
from tests.support.channels import change, make_channel
from tests.support.chat import ChatClient, Received
from tests.support.delivery_audit import Subscribed, Verdict, audit, tagged
from tests.support.ejabberd import PrivateEjabberd
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.faults

FEED = 1


@pytest.fixture(params=["prosody", "ejabberd"])
def server(request: pytest.FixtureRequest) -> Server:
    """Prosody, then ejabberd."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PrivateProsody | PrivateEjabberd)
    return found


@pytest_asyncio.fixture(params=["component", "client"])
async def settings(request: pytest.FixtureRequest, clean_redis: str, server: Server) -> Settings:
    """The settings of a bot at the server, as component and as account."""
    return await logging_in(server, request.param, clean_redis)


class Person:
    """A user with several clients, what they receive, and the audit of it."""

    def __init__(self, store: Store, server: Server, jid: str, bot_jid: str, channel: Channel) -> None:
        self.jid = jid
        self._store = store
        self._server = server
        self._bot_jid = bot_jid
        self._channel = channel
        self._since_s = 0.0
        self._published: list[PublishedEntry] = []
        self.clients: list[ChatClient] = []

    async def log_in(self, resource: str) -> ChatClient:
        """Bring one more client online, in a new session."""
        client = ChatClient(self.jid, "pw", "127.0.0.1", self._server.c2s_port, self._bot_jid, resource=resource)
        self.clients.append(client)
        return await client.start()

    async def come_and_read(self, *, show_presence: bool = True) -> tuple[ChatClient, ChatClient]:
        """Bring two clients online, which send receipts of a first entry."""
        first, second = await self.log_in("phone"), await self.log_in("laptop")
        await reach(first)
        if show_presence:
            await first.befriend()
            await until_so(lambda: first.sees_the_bot == "both", "each sees the other's presence")
        await self._store.subscriptions.subscribe(self.jid, self._channel.id)
        self._since_s = time.time()
        await self.publish()
        await asyncio.gather(told(first, 1), told(second, 1))
        await until(lambda: knows_receipts(self._store, first), "the bot expects receipts")
        return first, second

    async def log_out(self) -> None:
        """Take all clients offline."""
        await asyncio.gather(*(client.stop() for client in self.clients))

    async def publish(self, count: int = 1) -> None:
        """Publish entries, each in a version and message of its own."""
        for _ in range(count):
            number = len(self._published) + 1
            entry = Entry(f"n{number}", tagged(FEED, number), f"https://example.org/n{number}")
            self._published.append(PublishedEntry(FEED, entry.key, entry.link, entry.title, time.time()))
            delta = await change(self._store, self._channel, Change("addition", entry), base=number)
            uids = [user_id(self.jid)]
            await self._store.outbox.enqueue(uids, self._channel.id, delta.version, time.time(), VersionParts())
            await until(self._all_is_sent, "the server has it")

    async def unreceipted(self) -> list[Batch]:
        """Return the batches that were sent and have no receipt."""
        return (await self._store.outbox.in_flight([user_id(self.jid)]))[user_id(self.jid)]

    async def all_is_received(self) -> bool:
        """Whether all batches have their receipts."""
        return not await self.unreceipted()

    async def _all_is_sent(self) -> bool:
        uid = user_id(self.jid)
        return not (await self._store.outbox.oldest_queued_s([uid]))[0] and all(
            batch.acked for batch in await self.unreceipted()
        )

    def verdict(self, *clients: ChatClient) -> Verdict:
        """Audit these clients as if they were one that was offline in between."""
        received = [message for client in clients for message in client.received if not message.thread]
        subscribed = [Subscribed(self.jid, FEED, self._since_s)]
        return audit(self._published, subscribed, {self.jid: received}, {self.jid: {FEED}})


async def told(client: ChatClient, number: int) -> Received:
    return await client.wait_for(lambda message: tagged(FEED, number) in message.body, 30)


@contextlib.asynccontextmanager
async def somebody(store: Store, server: Server, settings: Settings) -> AsyncIterator[Person]:
    """Yield a user with an account."""
    jid = await server.register(f"person-{secrets.token_hex(4)}", "pw")
    person = Person(store, server, jid, settings.xmpp_jid, await make_channel(store))
    try:
        yield person
    finally:
        await person.log_out()


async def test_messages_of_a_dead_session_are_resent_to_the_returning_client(
    store: Store, server: Server, settings: Settings
) -> None:
    clock = JumpingClock()
    async with serving(settings, store, clock), somebody(store, server, settings) as person:
        phone, laptop = await person.come_and_read()
        await phone.vanish()
        await laptop.stop()
        await person.publish(5)
        unread = await person.unreceipted()
        assert len(unread) == 5
        again = await person.log_in("laptop")
        await again.say("status")
        assert not again.notifications, "the receipts may be under way"
        clock.ahead_s = RECEIPT_TIMEOUT_AT_RETURN_S
        await person.publish(2)
        await told(again, 8)
        verdict = person.verdict(laptop, again)
        assert verdict.broken == {}, str(verdict)
        assert verdict.resent == 0, "nothing goes again to who has it"
        stamped = {message.id: message.stamp for message in again.notifications if message.stamp}
        assert list(stamped) == [batch.message_id for batch in unread]
        for batch in unread:
            stamp = dt.datetime.fromisoformat(stamped[batch.message_id])
            assert stamp.timestamp() == pytest.approx(batch.claimed_s, abs=0.01)
        await until(person.all_is_received, "all has its receipt")
        await phone.start()
        await told(phone, 8)
        verdict = person.verdict(phone)
        assert verdict.broken == {}, str(verdict)


@pytest.mark.parametrize(("server", "settings"), [("ejabberd", "component")], indirect=True)
async def test_a_resend_continues_after_the_bot_is_killed(
    store: Store, server: Server, settings: Settings, tmp_path: Path
) -> None:
    async with somebody(store, server, settings) as person:
        async with bots(settings, tmp_path, 1) as (bot,):
            phone, laptop = await person.come_and_read()
            await phone.vanish()
            await laptop.stop()
            await person.publish(3)
            again = await person.log_in("laptop")
            await again.say("status")
            await bot.kill()
        clock = JumpingClock()
        async with serving(settings, store, clock):
            await again.say("status")
            clock.ahead_s = RECEIPT_TIMEOUT_S
            await person.publish()
            await told(again, 5)
            verdict = person.verdict(laptop, again)
            assert verdict.broken == {}, str(verdict)
            assert verdict.resent == 0


@pytest.mark.parametrize(("server", "settings"), [("prosody", "client")], indirect=True)
async def test_a_message_of_a_user_without_presence_starts_the_resend(
    store: Store, server: Server, settings: Settings
) -> None:
    clock = JumpingClock()
    async with serving(settings, store, clock), somebody(store, server, settings) as person:
        phone, laptop = await person.come_and_read(show_presence=False)
        await phone.vanish()
        await laptop.stop()
        await person.publish(3)
        again = await person.log_in("laptop")
        await again.say("status")
        clock.ahead_s = RECEIPT_TIMEOUT_AT_RETURN_S
        await person.publish()
        await told(again, 5)
        verdict = person.verdict(laptop, again)
        assert verdict.broken == {}, str(verdict)


@pytest.mark.parametrize(("server", "settings"), [("prosody", "component")], indirect=True)
async def test_nothing_is_resent_in_quiet_hours(store: Store, server: Server, settings: Settings) -> None:
    clock = JumpingClock()
    async with serving(settings, store, clock), somebody(store, server, settings) as person:
        phone, laptop = await person.come_and_read()
        await phone.vanish()
        await laptop.stop()
        await person.publish()
        again = await person.log_in("laptop")
        assert "quiet hours" in (await again.say("quiet 0-24")).lower()
        clock.ahead_s = RECEIPT_TIMEOUT_AT_RETURN_S
        await again.say("status")
        assert not again.notifications
        await again.say("quiet off")
        await told(again, 2)


@pytest.mark.parametrize(("server", "settings"), [("prosody", "component")], indirect=True)
async def test_a_client_without_receipts_gets_a_bounded_number_of_resends(
    store: Store, server: Server, settings: Settings
) -> None:
    clock = JumpingClock()
    async with serving(settings, store, clock), somebody(store, server, settings) as person:
        await person.come_and_read()
        await person.log_out()
        await person.publish()
        for number in range(3, 7):
            again = await person.log_in("laptop")
            again.give_receipts(willing=False)
            await again.say("status")
            clock.ahead_s += RECEIPT_TIMEOUT_AT_RETURN_S
            await person.publish()
            await told(again, number)
            await again.stop()
        times = Counter(message.id for client in person.clients for message in client.received if not message.thread)
        assert max(times.values()) == MAX_SENDS
