"""The bot process: leases, readiness, waiting for unavailable servers, and shutdown."""

import asyncio
import contextlib
import os
import signal

import pytest

from bots.bot import Bot
from bots.cluster import process
from bots.xmpp.interface import XmppSessionLost
from service.clock import SystemClock
from service.embedded.private_prosody import PrivateProsody
from service.feeds.canonical_urls import channel_id
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import Person, moved, reach, run_bot, tell
from tests.support.channels import make_channel
from tests.support.partition_holders import read_holders
from tests.support.scripted_worker import scripted_worker
from tests.support.waiting import until, until_so


async def has_leases(store: Store, settings: Settings) -> bool:
    """Return whether a process holds leases of the bot's partitions."""
    return bool(await read_holders(store, process.lease_group(settings)))


async def test_sigterm_stops_the_process_and_releases_its_leases(
    settings: Settings, store: Store, person: Person
) -> None:
    alice = await person()
    running = asyncio.create_task(run_bot(settings))
    await reach(alice)
    assert await has_leases(store, settings)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)
    assert not await has_leases(store, settings)


async def test_two_processes_give_one_answer_and_the_second_takes_over(
    settings: Settings, store: Store, person: Person
) -> None:
    alice = await person()
    first = asyncio.create_task(run_bot(settings))
    await reach(alice)
    second = asyncio.create_task(run_bot(settings))
    answer = await alice.say("help list")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await reach(alice)
    assert [message.body for message in alice.received].count(answer) == 1, "one answer from two processes"
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not await has_leases(store, settings)


async def test_a_ready_process_answers(settings: Settings, store: Store, person: Person) -> None:
    alice = await person()
    bot_process = process.create_process(settings, store, SystemClock())

    async def is_ready() -> bool:
        with contextlib.suppress(XmppSessionLost):
            bot_process.check_ready()
            return True
        return False

    assert not await is_ready()
    running = asyncio.create_task(bot_process.run())
    try:
        await until(is_ready, "the process is ready")
        assert await alice.say("status")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_process_waits_for_an_unavailable_xmpp_server(
    own_prosody: PrivateProsody, settings: Settings, store: Store, login: str
) -> None:
    late = await moved(settings, own_prosody)
    running = asyncio.create_task(run_bot(late))
    try:
        await until(store.bot_endpoints.metrics_urls, "the process runs without a server")
        await own_prosody.start()
        log = own_prosody.directory / "prosody.log"
        sign = "External component successfully authenticated" if login == "component" else "Authenticated as bot@"
        await until_so(lambda: sign in log.read_text(encoding="utf-8"), "it logs in once the server is available")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await own_prosody.stop()
    assert await store.bot_endpoints.metrics_urls() == [], "it is withdrawn"


async def test_a_presence_subscription_is_accepted_and_returned(bot: Bot, person: Person) -> None:
    alice = await person()
    await alice.befriend()
    roster = alice._xmpp.client_roster
    await until_so(lambda: roster[bot.connection.address].resources, "alice sees the bot online")
    await until_so(lambda: roster[bot.connection.address]["to"], "alice may see the bot's presence")


async def test_a_user_above_the_rate_limit_is_notified_once_and_others_are_served(
    settings: Settings, store: Store, person: Person
) -> None:
    strict = settings.model_copy(update={"max_commands_per_minute": 5})
    eve, bob = await asyncio.gather(person(), person())
    running = asyncio.create_task(run_bot(strict))
    await reach(eve)
    for _ in range(30):
        eve.send("status")
    await eve.wait_for(lambda message: "a minute" in message.body)
    assert await bob.say("status")
    assert len([message for message in eve.received if "more than 5 commands" in message.body]) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not await has_leases(store, strict)


@pytest.mark.usefixtures("bot")
async def test_hostile_text_is_answered_and_does_not_end_the_stream(person: Person, store: Store) -> None:
    alice = await person()
    await make_channel(store)
    for line in (
        "</body></message>",
        "\u202eevil",
        "{{7*7}}",
        "<svg onload=alert(1)>",
        "🧨" * 2_000,
        "subscribe \\@x%00",
    ):
        assert await alice.say(line)


@pytest.mark.parametrize("login", ["client"])
async def test_deliveries_complete_for_a_client_without_receipts(
    settings: Settings, store: Store, person: Person
) -> None:
    """The confirmation of the server completes a delivery; the next start of the bot repeats nothing."""
    alice = await person()
    alice.give_receipts(willing=False)
    feed = "https://example.org/feed"
    for round_number in (1, 2):
        running = asyncio.create_task(run_bot(settings))
        await reach(alice)
        async with scripted_worker(store, {feed: None}):
            assert "A feed" in await alice.say(feed)
        channel = await store.channels.get(channel_id(feed))
        assert channel is not None
        await tell(store, [alice], channel, f"news-{round_number}", base=round_number)
        await alice.wait_for(lambda message, number=round_number: f"Entry news-{number}" in message.body)  # type: ignore[misc] # a lambda's default has no type
        await until(lambda: _is_nothing_waiting(store), "the delivery is completed")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert ["news-1" in message.body for message in alice.received if not message.thread].count(True) == 1


async def _is_nothing_waiting(store: Store) -> bool:
    return not await store.outbox.count_waiting()
