"""Two bots share one account: both deliver, one answers, and when one is killed nothing is lost or comes twice."""

import asyncio
import contextlib
import re
import secrets
from collections import Counter
from pathlib import Path

import pytest

from bots import process
from bots.cluster.assigned_users import PARTITION_COUNT, partition_of
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import reach, tell
from tests.support.bot_process import bots
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.chat_load import answered, talk
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.e2e

VERSIONS = 20
COMMANDS = 20
HEALED_WITHIN_S = 60.0
ENTRY = re.compile(r"\bEntry k(\d+)\b")


async def servers(store: Store, settings: Settings) -> list[str]:
    """Which bot serves each part of the people; empty until all are served."""
    holders = await store.partition_leases.holders(process.lease_group(settings))
    return [holders[part] for part in range(PARTITION_COUNT)] if len(holders) == PARTITION_COUNT else []


async def shared_by(store: Store, settings: Settings, count: int) -> bool:
    """Whether so many bots serve about as many people each."""
    shares = Counter(await servers(store, settings))
    return len(shares) == count and max(shares.values()) - min(shares.values()) <= 1


def entries(person: ChatClient) -> list[int]:
    """The numbers of the entries somebody was told, in the order they came; what came twice is there twice."""
    return [int(number) for message in person.received for number in ENTRY.findall(message.body)]


async def publish(store: Store, people: list[ChatClient], versions: range) -> None:
    channel = await make_channel(store)
    for version in versions:
        await tell(store, people, channel, f"k{version}", base=version)
        await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_one_of_two_bots_is_killed_amidst_news_and_commands_and_nothing_is_lost_or_doubled(
    settings: Settings, store: Store, people: list[ChatClient], tmp_path: Path
) -> None:
    channel = await make_channel(store)
    async with bots(settings, tmp_path, 2) as running:
        await until(lambda: shared_by(store, settings, 2), "two bots share the account", within_s=HEALED_WITHIN_S)
        await asyncio.gather(*(reach(person) for person in people))
        for person in people:
            await store.subscriptions.subscribe(person.jid, channel.id)
        await publish(store, people, range(1, 3))
        await until_so(
            lambda: all(entries(person) == [1, 2] for person in people), "everybody is told", within_s=HEALED_WITHIN_S
        )
        voices = {message.resource for person in people for message in person.received if ENTRY.search(message.body)}
        serving = {(await servers(store, settings))[partition_of(user_id(person.jid))] for person in people}
        assert voices == {f"coronet-{bot}" for bot in serving}, "each is told by the bot that serves them"

        said = {person.jid: [secrets.token_hex(8) for _ in range(COMMANDS)] for person in people}
        talking = [asyncio.create_task(talk(person, said[person.jid])) for person in people]
        publishing = asyncio.create_task(publish(store, people, range(3, VERSIONS + 1)))
        await until_so(lambda: len(entries(people[0])) > VERSIONS // 3, "in the middle of it", within_s=HEALED_WITHIN_S)
        await running[0].kill()
        await asyncio.gather(publishing, *talking)

        def done(person: ChatClient) -> bool:
            return len(set(entries(person))) == VERSIONS and len(set(answered(person, said[person.jid]))) == COMMANDS

        with contextlib.suppress(AssertionError):  # what is missing is said below
            await until_so(lambda: all(map(done, people)), "all is told and answered", within_s=HEALED_WITHIN_S)
        await until(lambda: shared_by(store, settings, 1), "the other bot serves everybody", within_s=HEALED_WITHIN_S)
        for person in people:
            assert await person.say("status"), "and goes on"
    for person in people:
        assert entries(person) == list(range(1, VERSIONS + 1)), "each entry, once, in order"
        assert answered(person, said[person.jid]) == said[person.jid], "each command, once, in order"
        ids = [message.id for message in person.received]
        assert len(ids) == len(set(ids)), "no message id came twice"
