"""Servers and connections that fail during deliveries: nothing is lost, duplicated under two ids, or reordered."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from bots.delivery import batch_sender, resend_policy
from bots.xmpp import connection
from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.model import Channel
from service.settings import Settings
from service.store import Store, open_store
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, knows_receipts, moved, reach, run_bot, serving, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.tcp_proxy import proxy
from tests.support.waiting import until, until_so


async def subscribed(store: Store, person: ChatClient) -> Channel:
    """Subscribe a user to a feed, and make the bot learn that the user's client sends receipts."""
    channel = await make_channel(store)
    await store.subscriptions.subscribe(person.jid, channel.id)
    await person.say("status")
    await until(lambda: knows_receipts(store, person), "the bot knows that the client sends receipts")
    return channel


async def confirmed(store: Store, person: ChatClient) -> list[bool]:
    """Return for each batch in flight whether the server has confirmed it."""
    return [batch.acked for batch in (await store.outbox.in_flight([user_id(person.jid)]))[user_id(person.jid)]]


async def all_confirmed(store: Store, person: ChatClient, count: int) -> bool:
    """Return whether ``count`` batches are in flight and the server has confirmed all of them."""
    return await confirmed(store, person) == [True] * count


async def is_nothing_waiting(store: Store) -> bool:
    """Return whether every outbox is empty and nothing is in flight."""
    return not await store.outbox.count_waiting()


def delivered_titles(person: ChatClient) -> list[str]:
    """Return the entry titles in the notifications (the second lines), each message id once."""
    return [message.body.splitlines()[1] for message in person.notifications]


async def test_messages_lost_by_a_killed_server_are_sent_again_with_the_same_id(
    own_prosody: PrivateProsody, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend_policy, "RECEIPT_TIMEOUT_IF_UNSEEN_S", 2.0)
    own_settings = await moved(settings, own_prosody)
    jid = await own_prosody.register("alice", "pw")
    alice = ChatClient(jid, "pw", "127.0.0.1", own_prosody.c2s_port, own_settings.xmpp_jid)
    await own_prosody.start()
    try:
        await alice.start()
        async with serving(own_settings, store) as bot:
            channel = await subscribed(store, alice)
            alice.give_receipts(willing=False)
            await tell(store, [alice], channel, "shown")
            await until(lambda: all_confirmed(store, alice, 1), "the server has confirmed the first")
            await alice.vanish()
            for version in (2, 3):
                await tell(store, [alice], channel, f"kept-{version}", base=version)
                await until(lambda: all_confirmed(store, alice, version), "the server stores the message")  # noqa: B023 - awaited at once
            os.kill(own_prosody.pid, signal.SIGKILL)
            await until_so(lambda: not bot.connection.connected.is_set(), "the bot notices the loss")
            await own_prosody.stop()
            await own_prosody.start()
            alice.give_receipts(willing=True)
            await alice.start()
            await tell(store, [alice], channel, "later", base=4)
            await until(lambda: is_nothing_waiting(store), "all batches have receipts")
        assert delivered_titles(alice) == ["Entry shown", "Entry kept-2", "Entry kept-3", "Entry later"]
        again = [message.id for message in alice.received if "Entry shown" in message.body]
        assert len(again) == 2, "sent again, because there was no receipt"
        assert len(set(again)) == 1, "under the same id"
    finally:
        await alice.stop()
        await own_prosody.stop()


@pytest.mark.parametrize("login", ["client"])
async def test_after_a_refused_login_the_bot_waits_longer_and_tries_no_weaker_mechanism(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REFUSED_RETRIES_S", (0.1, 0.2, 3600.0))
    monkeypatch.setattr(connection, "_MAX_RETRY_S", 0.0)
    refused: list[str] = []
    link = connection.Connection(settings.model_copy(update={"xmpp_password": SecretStr("wrong")}), "s", print)
    mechanisms: Any = link._stream.plugin["feature_mechanisms"]
    link._stream.add_event_handler("failed_auth", lambda _: refused.append(mechanisms.mech.name))
    running = asyncio.create_task(link.run())
    try:
        await until_so(lambda: len(refused) == 3, "it tries again twice")
        await asyncio.sleep(1.0)
        assert refused == ["SCRAM-SHA-1"] * 3
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_half_open_connection_is_detected_and_replaced(
    settings: Settings, store: Store, person: Person, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old connection is not closed; the server still has it when the new one is made."""
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.2)
    monkeypatch.setattr(connection, "SILENCE_TIMEOUT_S", 0.6)
    alice = await person()
    async with contextlib.AsyncExitStack() as stack:
        tcp_proxy = await stack.enter_async_context(proxy("127.0.0.1", settings.xmpp_port))
        through = settings.model_copy(update={"xmpp_port": tcp_proxy.port})
        bot = await stack.enter_async_context(serving(through, store))
        channel = await subscribed(store, alice)
        sessions = bot.connection._session_number
        tcp_proxy.stall()
        for version in range(1, 6):
            await tell(store, [alice], channel, f"k{version}", base=version)
        await alice.wait_for(lambda message: "Entry k5" in message.body)
        assert await alice.say("list")
        await until(lambda: is_nothing_waiting(store), "all deliveries are completed")
        assert (bot.connection._session_number == sessions) == (login == "client"), "a client's session is resumed"
    text = "\n".join(message.body for message in alice.received)
    assert [text.count(f"Entry k{version}") for version in range(1, 6)] == [1] * 5
    assert sorted(range(1, 6), key=lambda version: text.index(f"Entry k{version}")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("login", ["component"])
async def test_killing_redis_during_delivery_loses_and_duplicates_nothing(
    tmp_path: Path, settings: Settings, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "MAX_ITEMS", 1)
    versions = range(1, 61)
    alice = await person()
    async with PrivateRedis(tmp_path / "redis") as redis:
        own_settings = settings.model_copy(update={"redis_url": redis.url, "messages_per_s_per_user": 1_000.0})
        store = open_store(own_settings)
        async with serving(own_settings, store):
            channel = await subscribed(store, alice)
        for version in versions:
            await tell(store, [alice], channel, f"k{version}", base=version)
        async with serving(own_settings, store):
            for moment in (5, 25):
                await alice.wait_for(lambda message, moment=moment: f"Entry k{moment}\n" in message.body)  # type: ignore[misc] # a lambda's default has no type
                os.kill(redis.pid, signal.SIGKILL)
                await redis.stop()
                await redis.start()
            await until(lambda: is_nothing_waiting(store), "all batches have receipts", within_s=30)
        await store.close()
    assert delivered_titles(alice) == [f"Entry k{version}" for version in versions]


@contextlib.asynccontextmanager
async def bot_process(settings: Settings) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a bot in its own process."""
    environment = {
        f"CORONET_{name.upper()}": str(value) for name, value in settings.model_dump(exclude_defaults=True).items()
    }
    environment["CORONET_XMPP_PASSWORD"] = settings.xmpp_password.get_secret_value()
    command = (sys.executable, "-m", "service.cli", "bot")
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_paused_process_is_replaced_and_does_not_disturb_its_successor(
    settings: Settings, store: Store, person: Person
) -> None:
    """A paused process (SIGSTOP) keeps its connection open; the server still accepts the successor."""
    own_settings = settings.model_copy(update={"lease_ttl_s": 1.5})
    alice = await person()
    async with bot_process(own_settings) as stopped:
        await reach(alice)
        channel = await subscribed(store, alice)
        stopped.send_signal(signal.SIGSTOP)
        await tell(store, [alice], channel, "while-stopped")
        successor = asyncio.create_task(run_bot(own_settings))
        try:
            await alice.wait_for(lambda message: "Entry while-stopped" in message.body)
            stopped.send_signal(signal.SIGCONT)
            await tell(store, [alice], channel, "after", base=2)
            await alice.wait_for(lambda message: "Entry after" in message.body)
            await alice.say("list")
        finally:
            successor.cancel()
            await asyncio.gather(successor, return_exceptions=True)
    assert delivered_titles(alice) == ["Entry while-stopped", "Entry after"]
