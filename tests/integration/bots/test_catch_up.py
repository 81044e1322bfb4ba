"""After downtime, a bot answers the messages that its server stored meanwhile, once and in order."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from slixmpp import JID

from service.embedded.private_prosody import PrivateProsody
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import JumpingClock, moved, serving
from tests.support.channels import make_channel
from tests.support.chat import ChatClient, online
from tests.support.prosody import ArchivingProsody, ForgetfulProsody
from tests.support.waiting import until, until_so

DAY_S = 86_400.0


@pytest.fixture
def login() -> str:
    """Log in as a client, because servers store messages only for accounts."""
    return "client"


@pytest.fixture(params=[PrivateProsody, ForgetfulProsody, ArchivingProsody], ids=["both", "offline", "archive"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> PrivateProsody:
    """A Prosody that stores messages as offline messages, in archives, or both."""
    made: PrivateProsody = request.param(tmp_path / "prosody")
    return made


@pytest_asyncio.fixture
async def own_settings(settings: Settings, server: PrivateProsody) -> AsyncIterator[Settings]:
    """Settings of a bot at that server, which is running."""
    found = await moved(settings, server)
    async with server:
        yield found


@pytest_asyncio.fixture
async def alice(own_settings: Settings, server: PrivateProsody) -> AsyncIterator[ChatClient]:
    """A user who is online at that server."""
    jid = await server.register("alice", "pw")
    async with online(jid, "pw", "127.0.0.1", server.c2s_port, own_settings.xmpp_jid) as client:
        yield client


def send_all(person: ChatClient, *texts: str) -> list[str]:
    """Send texts without waiting for answers; return their threads."""
    threads = [secrets.token_hex(8) for _ in texts]
    for text, thread in zip(texts, threads, strict=True):
        person.send(text, thread=thread)
    return threads


def answered_threads(person: ChatClient) -> list[str]:
    return [message.thread for message in person.received]


async def test_messages_sent_during_downtime_are_answered_once_and_in_order(
    own_settings: Settings, store: Store, alice: ChatClient
) -> None:
    channel = await make_channel(store)
    async with serving(own_settings, store):
        await alice.say("status")
        await _checkpoint_written(store, own_settings)
    threads = send_all(alice, f"subscribe {channel.url}", "list", f"subscribe {channel.url}", "status")
    await _handled_by_server(alice)
    async with serving(own_settings, store):
        last = send_all(alice, "list")
        await until_so(lambda: set(last) <= set(answered_threads(alice)), "all messages are answered")
    async with serving(own_settings, store):
        last += send_all(alice, "list")
        await until_so(lambda: set(last) <= set(answered_threads(alice)), "nothing is answered twice")
    assert answered_threads(alice)[1:] == [*threads, *last], "each once and in order"
    assert "A feed" in alice.received[2].body
    assert "already" in alice.received[3].body
    assert [held.number for held in await store.subscriptions.of_user(alice.jid)] == [1]


async def test_messages_older_than_a_day_are_not_answered(
    own_settings: Settings, store: Store, alice: ChatClient
) -> None:
    async with serving(own_settings, store):
        await alice.say("status")
        await _checkpoint_written(store, own_settings)
    send_all(alice, "list")
    await _handled_by_server(alice)
    clock = JumpingClock()
    clock.ahead_s = DAY_S + 60.0
    async with serving(own_settings, store, clock):
        await alice.say("status")
    assert len(alice.received) == 2


async def test_a_message_id_reused_after_an_hour_is_a_new_message(
    own_settings: Settings, store: Store, alice: ChatClient
) -> None:
    """Some clients restart their message ids in each session."""
    message = f"<message to='{own_settings.xmpp_jid}' id='1' type='chat'><body>list</body></message>"
    async with serving(own_settings, store):
        alice.send_raw(message)
        await until_so(lambda: len(alice.received) == 1, "the message is answered")
        await _checkpoint_written(store, own_settings)
    (known,) = await store.redis.call("KEYS", "*:known")
    for token in await store.redis.call("ZRANGE", known, 0, -1):
        await store.redis.call("ZINCRBY", known, -3_600, token)
    alice.send_raw(message)
    await _handled_by_server(alice)
    async with serving(own_settings, store):
        await alice.say("status")
    assert len(alice.received) == 3


async def _checkpoint_written(store: Store, settings: Settings) -> None:
    """Return once the intake has written a checkpoint."""
    await until(lambda: store.inbound_log.caught_up_until_s(settings.xmpp_jid), "a checkpoint is written")


async def _handled_by_server(person: ChatClient) -> None:
    """Return once the server has handled all stanzas that the user sent."""
    await person._xmpp.plugin["xep_0199"].send_ping(JID(person.jid.partition("@")[2]), timeout=20)
