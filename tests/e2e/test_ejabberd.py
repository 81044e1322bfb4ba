"""The bot with ejabberd, as component and as client: deliveries continue after downtime of the user and the bot."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from service.feeds.entries.version_parts import VersionParts
from service.model import Channel
from service.operations.doctor.xmpp_login_check import check_xmpp
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support import channels
from tests.support.bot_in_process import logging_in, reach, serving, tell
from tests.support.bot_process import bots
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.chat_load import answered, talk
from tests.support.ejabberd import PrivateEjabberd
from tests.support.room_guest import Guest
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.e2e


@pytest.fixture(params=["component", "client"])
def login(request: pytest.FixtureRequest) -> str:
    """The way the bot logs in."""
    return str(request.param)


@pytest_asyncio.fixture
async def settings(clean_redis: str, ejabberd: PrivateEjabberd, login: str) -> Settings:
    """Settings of a bot at ejabberd."""
    return await logging_in(ejabberd, login, clean_redis)


@pytest_asyncio.fixture
async def alice(settings: Settings, ejabberd: PrivateEjabberd) -> AsyncIterator[ChatClient]:
    """A user who is online at the server."""
    jid = await ejabberd.register(f"alice-{secrets.token_hex(4)}", "pw")
    async with online_again(jid, settings, ejabberd) as client:
        yield client


@contextlib.asynccontextmanager
async def online_again(jid: str, settings: Settings, ejabberd: PrivateEjabberd) -> AsyncIterator[ChatClient]:
    client = ChatClient(jid, "pw", "127.0.0.1", ejabberd.c2s_port, settings.xmpp_jid)
    try:
        yield await client.start()
    finally:
        await client.stop()


async def publish(store: Store, person: ChatClient, channel: Channel, *versions: int) -> None:
    """Publish an entry in each of these versions, and wait until the server has confirmed them."""
    for version in versions:
        await tell(store, [person], channel, f"k{version}", base=version)

    async def is_sent() -> bool:
        uid = user_id(person.jid)
        (oldest_s,) = await store.outbox.oldest_queued_s([uid])
        return oldest_s is None and all(batch.acked for batch in (await store.outbox.in_flight([uid]))[uid])

    await until(is_sent, "the server has confirmed it")


async def is_nothing_waiting(store: Store) -> bool:
    return not await store.outbox.count_waiting()


def entries(*clients: ChatClient) -> list[str]:
    """Return the entries that the clients received, in order, with duplicates."""
    return [
        line
        for client in clients
        for message in client.received
        for line in message.body.splitlines()
        if line.startswith("Entry")
    ]


async def test_entries_are_delivered_while_the_user_is_online_and_after_downtime(
    settings: Settings, store: Store, ejabberd: PrivateEjabberd, alice: ChatClient, tmp_path: Path
) -> None:
    channel = await make_channel(store)
    async with bots(settings, tmp_path, 1) as running:
        await reach(alice)
        await alice.befriend()
        await until_so(lambda: alice.sees_the_bot == "both", "each sees the other's presence")
        assert "Subscribed" in await alice.say(f"subscribe {channel.url}")
        await publish(store, alice, channel, 1, 2)
        await alice.wait_for(lambda message: "Entry k2" in message.body)
        await until(lambda: is_nothing_waiting(store), "the receipts complete the deliveries")
        assert (await store.users.get(alice.jid)).receipts
        await alice.stop()
        await publish(store, alice, channel, 3, 4)
        async with online_again(alice.jid, settings, ejabberd) as back:
            await back.wait_for(lambda message: "Entry k4" in message.body)
            await until(lambda: is_nothing_waiting(store), "the receipts complete the deliveries")
            await running[0].kill()
            await tell(store, [alice], channel, "k5", base=5)
            threads = [secrets.token_hex(8) for _ in range(4)]
            await talk(back, threads)
            async with bots(settings, tmp_path, 1):
                await back.wait_for(lambda message: "Entry k5" in message.body)
                if settings.xmpp_login == "client":  # servers do not store messages to a component that is offline
                    await until_so(lambda: len(answered(back, threads)) == len(threads), "all commands are answered")
                    assert answered(back, threads) == threads
                assert "Unsubscribed" in await back.say("unsubscribe #1")
            assert entries(alice, back) == [f"Entry k{number}" for number in range(1, 6)]


async def test_the_doctor_checks_the_password(settings: Settings, login: str) -> None:
    (fine,) = await check_xmpp(settings, set())
    (refused,) = await check_xmpp(settings.model_copy(update={"xmpp_password": SecretStr("wrong")}), set())
    assert (fine.ok, refused.ok) == (True, False)
    assert refused.details.endswith("the password is refused" if login == "client" else "rejects the secret")


async def test_a_room_is_joined_answered_and_gets_entries(settings: Settings, store: Store, alice: ChatClient) -> None:
    channel = await make_channel(store)
    async with serving(settings, store):
        owner = await Guest(alice, f"room-{secrets.token_hex(4)}@rooms.localhost", "alice").open()
        owner.invite(settings.xmpp_jid)
        await owner.hears("Hello! I'm Coronet")
        owner.say(f"Coronet: subscribe {channel.url}")
        await owner.hears("alice: Subscribed to *A feed* (#1)")
        delta = await channels.publish(store, channel, "new")
        await store.outbox.enqueue([user_id(owner.room)], channel.id, delta.version, 2_000.0, VersionParts())
        await owner.hears("Entry new")
