"""A bot that comes back answers what was said to it meanwhile, once and in order, as its server kept it."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from slixmpp import JID

from service.embedded.prosody import PrivateProsody
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
    """The way that has a server keep what is said."""
    return "client"


@pytest.fixture(params=[PrivateProsody, ForgetfulProsody, ArchivingProsody], ids=["both", "offline", "archive"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> PrivateProsody:
    """Prosody as it keeps words for who is away: as offline messages, in archives, or both."""
    made: PrivateProsody = request.param(tmp_path / "prosody")
    return made


@pytest_asyncio.fixture
async def mine(settings: Settings, server: PrivateProsody) -> AsyncIterator[Settings]:
    """Settings of a bot at that server, which runs."""
    found = await moved(settings, server)
    async with server:
        yield found


@pytest_asyncio.fixture
async def alice(mine: Settings, server: PrivateProsody) -> AsyncIterator[ChatClient]:
    """Somebody online there."""
    jid = await server.register("alice", "pw")
    async with online(jid, "pw", "127.0.0.1", server.c2s_port, mine.xmpp_jid) as client:
        yield client


def say(person: ChatClient, *texts: str) -> list[str]:
    """Say these without waiting; return the threads."""
    threads = [secrets.token_hex(8) for _ in texts]
    for text, thread in zip(texts, threads, strict=True):
        person.send(text, thread=thread)
    return threads


def answered(person: ChatClient) -> list[str]:
    return [message.thread for message in person.received]


async def test_what_was_said_meanwhile_is_answered_once_and_in_order(
    mine: Settings, store: Store, alice: ChatClient
) -> None:
    channel = await make_channel(store)
    async with serving(mine, store):
        await alice.say("status")
        await _noted(store, mine)
    threads = say(alice, f"subscribe {channel.url}", "list", f"subscribe {channel.url}", "status")
    await _arrived(alice)
    async with serving(mine, store):
        last = say(alice, "list")
        await until_so(lambda: set(last) <= set(answered(alice)), "all is answered")
    async with serving(mine, store):
        last += say(alice, "list")
        await until_so(lambda: set(last) <= set(answered(alice)), "and nothing again")
    assert answered(alice)[1:] == [*threads, *last], "each once, in order"
    assert "A feed" in alice.received[2].body
    assert "already" in alice.received[3].body
    assert [held.number for held in await store.subscriptions.of_user(alice.jid)] == [1]


async def test_what_was_said_more_than_a_day_ago_is_not_answered(
    mine: Settings, store: Store, alice: ChatClient
) -> None:
    async with serving(mine, store):
        await alice.say("status")
        await _noted(store, mine)
    say(alice, "list")
    await _arrived(alice)
    clock = JumpingClock()
    clock.ahead_s = DAY_S + 60.0
    async with serving(mine, store, clock):
        await alice.say("status")
    assert len(alice.received) == 2


async def test_a_message_id_that_was_used_an_hour_before_is_no_sign_of_the_same_words(
    mine: Settings, store: Store, alice: ChatClient
) -> None:
    """Some clients count their messages anew in each session."""
    message = f"<message to='{mine.xmpp_jid}' id='1' type='chat'><body>list</body></message>"
    async with serving(mine, store):
        alice.send_raw(message)
        await until_so(lambda: len(alice.received) == 1, "it is answered")
        await _noted(store, mine)
    (known,) = await store.redis.call("KEYS", "*:known")
    for token in await store.redis.call("ZRANGE", known, 0, -1):
        await store.redis.call("ZINCRBY", known, -3_600, token)
    alice.send_raw(message)
    await _arrived(alice)
    async with serving(mine, store):
        await alice.say("status")
    assert len(alice.received) == 3


async def _noted(store: Store, settings: Settings) -> None:
    """Return once it is noted until when a bot has listened."""
    await until(lambda: store.inbound_log.caught_up_until_s(settings.xmpp_jid), "it is noted")


async def _arrived(person: ChatClient) -> None:
    """Return once the server has handled what somebody said."""
    await person._xmpp.plugin["xep_0199"].send_ping(JID(person.jid.partition("@")[2]), timeout=20)
