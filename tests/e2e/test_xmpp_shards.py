"""Two component addresses: entries come from a user's home address, answers from the address that was asked."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bots.cluster import process
from service.embedded.private_prosody import PrivateProsody
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import reach, tell
from tests.support.bot_process import bots
from tests.support.channels import make_channel
from tests.support.chat import ChatClient, online
from tests.support.client_software import Errand
from tests.support.partition_holders import read_holders
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

START_TIMEOUT_S = 60.0


@pytest_asyncio.fixture
async def sharded(tmp_path: Path) -> AsyncIterator[PrivateProsody]:
    """A Prosody with two components for bots."""
    async with PrivateProsody(tmp_path / "prosody", shards=1) as server:
        yield server


@pytest.fixture
def settings(clean_redis: str, sharded: PrivateProsody) -> Settings:
    """Settings of all bot processes."""
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


async def is_served_by(store: Store, settings: Settings, count: int) -> bool:
    """Return whether ``count`` processes serve all addresses."""
    holders = await read_holders(store, process.lease_group(settings))
    return len(holders) == 2 and len(set(holders.values())) == count


async def say_to(person: ChatClient, address: str, text: str) -> str:
    """Send a command to an address; return the answer, which must come from that address."""
    thread = secrets.token_hex(8)
    before, person.bot_jid = person.bot_jid, address
    person.send(text, thread=thread)
    person.bot_jid = before
    answer = await person.wait_for(lambda message: message.thread == thread)
    assert answer.sender == address
    return answer.body


@pytest.mark.timeout(180)
async def test_addresses_deliver_to_their_users_and_survive_the_failure_of_a_process(
    settings: Settings, sharded: PrivateProsody, store: Store, tmp_path: Path
) -> None:
    one, two = settings.xmpp_jid, settings.xmpp_shards[0]
    jids = [await sharded.register(f"person-{number}", "pw") for number in range(2)]
    port = sharded.c2s_port
    channel = await make_channel(store)
    async with bots(settings, tmp_path, 2) as running:
        await until(lambda: is_served_by(store, settings, 2), "each address has a process", within_s=START_TIMEOUT_S)
        async with (
            online(jids[0], "pw", "127.0.0.1", port, one) as alice,
            online(jids[1], "pw", "127.0.0.1", port, two) as bob,
        ):
            await asyncio.gather(reach(alice), reach(bob))
            for person in (alice, bob):
                await store.subscriptions.subscribe(person.jid, channel.id)

            async def deliver(number: int) -> None:
                await tell(store, [alice, bob], channel, f"k{number}", base=number)
                for person in (alice, bob):
                    news = await person.wait_for(lambda message: f"Entry k{number}" in message.body, 40.0)
                    assert news.sender == person.bot_jid, "the entry comes from the home address"

            await deliver(1)
            assert "#1 A feed" in await say_to(bob, one, "list"), "the answer comes from the address that was asked"
            assert "#1 A feed" in await say_to(alice, two, "list")
            await deliver(2)
            errand = Errand(alice, two, "list")
            assert "#1 A feed" in errand.note(await errand.step())[1], "ad-hoc commands as well"
            await running[0].kill()
            await until(
                lambda: is_served_by(store, settings, 1), "one process serves both addresses", within_s=START_TIMEOUT_S
            )
            await asyncio.gather(reach(alice), reach(bob))
            await deliver(3)
            for person in (alice, bob):
                ids = [message.id for message in person.received]
                assert len(ids) == len(set(ids)), "no message id is received twice"
                assert [sum(f"Entry k{n}" in m.body for m in person.received) for n in (1, 2, 3)] == [1, 1, 1]
