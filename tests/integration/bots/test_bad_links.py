"""Servers and links that fail in the middle: nothing is lost, nothing comes twice under two ids, order is kept."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.delivery import batch_sender, scheduler
from bots.main import run
from bots.xmpp import connection
from service.embedded.prosody import PrivateProsody
from service.embedded.redis import PrivateRedis
from service.model import Channel
from service.settings import Settings
from service.store import Store, connect
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, knows_receipts, moved, reach, serving, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.tcp_proxy import proxy
from tests.support.waiting import until, until_so


async def subscribed(store: Store, person: ChatClient) -> Channel:
    """Have a person subscribe to a feed, and teach the bot that their client sends receipts."""
    channel = await make_channel(store)
    await store.subscriptions.subscribe(person.jid, channel.id)
    await person.say("status")
    await until(lambda: knows_receipts(store, person), "the bot knows that the client sends receipts")
    return channel


async def confirmed(store: Store, person: ChatClient) -> list[bool]:
    """Of each batch in flight, whether the server has it."""
    return [batch.acked for batch in (await store.outbox.in_flight([user_id(person.jid)]))[user_id(person.jid)]]


async def all_confirmed(store: Store, person: ChatClient, count: int) -> bool:
    """Whether ``count`` batches are in flight, and the server has them all."""
    return await confirmed(store, person) == [True] * count


async def nothing_waits(store: Store) -> bool:
    """Whether every outbox is empty and nothing is in flight."""
    return not await store.outbox.count_waiting()


def told(person: ChatClient) -> list[str]:
    """The second line of each notification, each message id once: the entry's title."""
    return [message.body.splitlines()[1] for message in person.notifications]


async def test_what_only_the_server_had_is_sent_again_after_its_kill(
    own_prosody: PrivateProsody, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "RECEIPT_TIMEOUT_IF_UNSEEN_S", 2.0)
    mine = await moved(settings, own_prosody)
    jid = await own_prosody.register("alice", "pw")
    alice = ChatClient(jid, "pw", "127.0.0.1", own_prosody.c2s_port, mine.xmpp_jid)
    await own_prosody.start()
    try:
        await alice.start()
        async with serving(mine, store) as bot:
            channel = await subscribed(store, alice)
            alice.give_receipts(willing=False)
            await tell(store, [alice], channel, "shown")
            await until(lambda: all_confirmed(store, alice, 1), "the server has the first")
            await alice.vanish()
            for version in (2, 3):
                await tell(store, [alice], channel, f"kept-{version}", base=version)
                await until(lambda: all_confirmed(store, alice, version), "the server keeps it for her")  # noqa: B023 - awaited at once
            os.kill(own_prosody.pid, signal.SIGKILL)
            await until_so(lambda: not bot.connection.connected.is_set(), "the bot notices")
            await own_prosody.stop()
            await own_prosody.start()
            alice.give_receipts(willing=True)
            await alice.start()
            await tell(store, [alice], channel, "later", base=4)
            await until(lambda: nothing_waits(store), "everything has its receipt")
        assert told(alice) == ["Entry shown", "Entry kept-2", "Entry kept-3", "Entry later"]
        again = [message.id for message in alice.received if "Entry shown" in message.body]
        assert len(again) == 2, "sent again, because no receipt had come"
        assert len(set(again)) == 1, "under the same id"
    finally:
        await alice.stop()
        await own_prosody.stop()


async def test_a_half_open_connection_is_noticed_and_replaced(
    settings: Settings, store: Store, person: Person, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is closed, nothing comes through; the server still holds the old connection when the new one comes."""
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.2)
    monkeypatch.setattr(connection, "SILENCE_TIMEOUT_S", 0.6)
    alice = await person()
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(proxy("127.0.0.1", settings.xmpp_port))
        through = settings.model_copy(update={"xmpp_port": link.port})
        bot = await stack.enter_async_context(serving(through, store))
        channel = await subscribed(store, alice)
        sessions = bot.connection._session_number
        link.stall()
        for version in range(1, 6):
            await tell(store, [alice], channel, f"k{version}", base=version)
        await alice.wait_for(lambda message: "Entry k5" in message.body)
        assert await alice.say("list")
        await until(lambda: nothing_waits(store), "everything is finished")
        assert (bot.connection._session_number == sessions) == (login == "client"), "a client's session is resumed"
    text = "\n".join(message.body for message in alice.received)
    assert [text.count(f"Entry k{version}") for version in range(1, 6)] == [1] * 5
    assert sorted(range(1, 6), key=lambda version: text.index(f"Entry k{version}")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("login", ["component"])
async def test_redis_killed_under_delivery_loses_and_doubles_nothing(
    tmp_path: Path, settings: Settings, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "MAX_ITEMS", 1)
    versions = range(1, 61)
    alice = await person()
    async with PrivateRedis(tmp_path / "redis") as redis:
        mine = settings.model_copy(update={"redis_url": redis.url, "messages_per_s_per_user": 1_000.0})
        store = await connect(mine)
        async with serving(mine, store):
            channel = await subscribed(store, alice)
        for version in versions:
            await tell(store, [alice], channel, f"k{version}", base=version)
        async with serving(mine, store):
            for moment in (5, 25):
                await alice.wait_for(lambda message, moment=moment: f"Entry k{moment}\n" in message.body)  # type: ignore[misc] # a lambda's default has no type
                os.kill(redis.pid, signal.SIGKILL)
                await redis.stop()
                await redis.start()
            await until(lambda: nothing_waits(store), "everything has its receipt", within_s=30)
        await store.close()
    assert told(alice) == [f"Entry k{version}" for version in versions]


@contextlib.asynccontextmanager
async def bot_process(settings: Settings) -> AsyncIterator[asyncio.subprocess.Process]:
    """A bot in a process of its own."""
    told = {f"CORONET_{name.upper()}": str(value) for name, value in settings.model_dump(exclude_defaults=True).items()}
    told["CORONET_XMPP_PASSWORD"] = settings.xmpp_password.get_secret_value()
    command = (sys.executable, "-m", "service.cli", "bot")
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | told, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_stopped_bots_successor_takes_over_and_stays_when_it_wakes(
    settings: Settings, store: Store, person: Person
) -> None:
    """A stopped process keeps its connection open and says nothing: the server lets the successor in all the same."""
    mine = settings.model_copy(update={"lease_ttl_s": 1.5})
    alice = await person()
    async with bot_process(mine) as stopped:
        await reach(alice)
        channel = await subscribed(store, alice)
        stopped.send_signal(signal.SIGSTOP)
        await tell(store, [alice], channel, "while-stopped")
        successor = asyncio.create_task(run(mine))
        try:
            await alice.wait_for(lambda message: "Entry while-stopped" in message.body)
            stopped.send_signal(signal.SIGCONT)
            await tell(store, [alice], channel, "after", base=2)
            await alice.wait_for(lambda message: "Entry after" in message.body)
            await alice.say("list")
        finally:
            successor.cancel()
            await asyncio.gather(successor, return_exceptions=True)
    assert told(alice) == ["Entry while-stopped", "Entry after"]
