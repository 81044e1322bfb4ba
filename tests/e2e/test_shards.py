"""Two components of one service: each person is told by the one they know, and answered by the one they ask."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bots import process
from service.embedded.prosody import PrivateProsody
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import reach, tell
from tests.support.bot_process import bots
from tests.support.channels import make_channel
from tests.support.chat import ChatClient, online
from tests.support.client_software import Errand
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

STARTED_WITHIN_S = 60.0


@pytest_asyncio.fixture
async def sharded(tmp_path: Path) -> AsyncIterator[PrivateProsody]:
    """A Prosody with two components for bots."""
    async with PrivateProsody(tmp_path / "prosody", shards=1) as server:
        yield server


@pytest.fixture
def settings(clean_redis: str, sharded: PrivateProsody) -> Settings:
    """What every bot is told."""
    return Settings(
        redis_url=clean_redis,
        xmpp_jid=sharded.bot_jid,
        xmpp_shards=sharded.shards,
        xmpp_password=SecretStr(sharded.component_secret),
        xmpp_host="127.0.0.1",
        xmpp_port=sharded.component_port,
        lease_ttl_s=4.0,
        max_commands_per_minute=10_000,
    )


async def served_by(store: Store, settings: Settings, count: int) -> bool:
    """Whether all addresses are served, by so many processes."""
    holders = await store.partition_leases.holders(process.lease_group(settings))
    return len(holders) == 2 and len(set(holders.values())) == count


async def ask(person: ChatClient, address: str, text: str) -> str:
    """Ask the bot at an address; return the answer, which has to come from there."""
    thread = secrets.token_hex(8)
    before, person.bot_jid = person.bot_jid, address
    person.send(text, thread=thread)
    person.bot_jid = before
    answer = await person.wait_for(lambda message: message.thread == thread)
    assert answer.sender == address
    return answer.body


@pytest.mark.timeout(180)
async def test_people_are_told_by_the_shard_they_know_answered_by_the_one_they_ask_and_kept_when_a_process_dies(
    settings: Settings, sharded: PrivateProsody, store: Store, tmp_path: Path
) -> None:
    one, two = settings.xmpp_jid, settings.xmpp_shards[0]
    jids = [await sharded.register(f"person-{number}", "pw") for number in range(2)]
    port = sharded.c2s_port
    channel = await make_channel(store)
    async with bots(settings, tmp_path, 2) as running:
        await until(lambda: served_by(store, settings, 2), "a process for each address", within_s=STARTED_WITHIN_S)
        async with (
            online(jids[0], "pw", "127.0.0.1", port, one) as alice,
            online(jids[1], "pw", "127.0.0.1", port, two) as bob,
        ):
            await asyncio.gather(reach(alice), reach(bob))
            for person in (alice, bob):
                await store.subscriptions.subscribe(person.jid, channel.id)

            async def told(number: int) -> None:
                await tell(store, [alice, bob], channel, f"k{number}", base=number)
                for person in (alice, bob):
                    news = await person.wait_for(lambda message: f"Entry k{number}" in message.body, 40.0)
                    assert news.sender == person.bot_jid, "told by the one they know"

            await told(1)
            assert "#1 A feed" in await ask(bob, one, "list"), "answered by the one they asked"
            assert "#1 A feed" in await ask(alice, two, "list")
            await told(2)
            errand = Errand(alice, two, "list")
            assert "#1 A feed" in errand.note(await errand.step())[1], "also their software's orders"
            await running[0].kill()
            await until(lambda: served_by(store, settings, 1), "one process for both", within_s=STARTED_WITHIN_S)
            await asyncio.gather(reach(alice), reach(bob))
            await told(3)
            for person in (alice, bob):
                ids = [message.id for message in person.received]
                assert len(ids) == len(set(ids)), "no message id came twice"
                assert [sum(f"Entry k{n}" in m.body for m in person.received) for n in (1, 2, 3)] == [1, 1, 1]
