"""Two processes share one account: when one is killed, no entry or answer is lost or duplicated (I2, I8)."""

import asyncio
import contextlib
import re
import secrets
from collections import Counter
from pathlib import Path

import pytest

from bots.cluster import process
from bots.cluster.partitions import PARTITION_COUNT, partition_of
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import reach, tell
from tests.support.bot_process import bots
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.chat_load import answered, talk
from tests.support.partition_holders import read_holders
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.e2e

VERSIONS = 20
COMMANDS = 20
RECOVERY_TIMEOUT_S = 60.0
ENTRY = re.compile(r"\bEntry k(\d+)\b")


async def partition_holders(store: Store, settings: Settings) -> list[str]:
    """Return the process that serves each partition, [] until all partitions are served."""
    holders = await read_holders(store, process.lease_group(settings))
    return [holders[number] for number in range(PARTITION_COUNT)] if len(holders) == PARTITION_COUNT else []


async def is_shared_by(store: Store, settings: Settings, count: int) -> bool:
    """Return whether ``count`` processes serve about equally many partitions each."""
    shares = Counter(await partition_holders(store, settings))
    return len(shares) == count and max(shares.values()) - min(shares.values()) <= 1


def entries(person: ChatClient) -> list[int]:
    """Return the numbers of the entries that a user received, in order of arrival, with duplicates."""
    return [int(number) for message in person.received for number in ENTRY.findall(message.body)]


async def publish(store: Store, people: list[ChatClient], versions: range) -> None:
    channel = await make_channel(store)
    for version in versions:
        await tell(store, people, channel, f"k{version}", base=version)
        await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_killing_one_of_two_processes_loses_and_duplicates_nothing(
    settings: Settings, store: Store, people: list[ChatClient], tmp_path: Path
) -> None:
    channel = await make_channel(store)
    async with bots(settings, tmp_path, 2) as running:
        await until(
            lambda: is_shared_by(store, settings, 2), "two processes share the account", within_s=RECOVERY_TIMEOUT_S
        )
        await asyncio.gather(*(reach(person) for person in people))
        for person in people:
            await store.subscriptions.subscribe(person.jid, channel.id)
        await publish(store, people, range(1, 3))
        await until_so(
            lambda: all(entries(person) == [1, 2] for person in people),
            "all users got the entries",
            within_s=RECOVERY_TIMEOUT_S,
        )
        senders = {message.resource for person in people for message in person.received if ENTRY.search(message.body)}
        holders = {(await partition_holders(store, settings))[partition_of(user_id(person.jid))] for person in people}
        assert senders == {f"coronet-{bot}" for bot in holders}, (
            "each user gets messages from the process that serves them"
        )

        threads = {person.jid: [secrets.token_hex(8) for _ in range(COMMANDS)] for person in people}
        talking = [asyncio.create_task(talk(person, threads[person.jid])) for person in people]
        publishing = asyncio.create_task(publish(store, people, range(3, VERSIONS + 1)))
        await until_so(
            lambda: len(entries(people[0])) > VERSIONS // 3, "some entries are delivered", within_s=RECOVERY_TIMEOUT_S
        )
        await running[0].kill()
        await asyncio.gather(publishing, *talking)

        def done(person: ChatClient) -> bool:
            return len(set(entries(person))) == VERSIONS and len(set(answered(person, threads[person.jid]))) == COMMANDS

        with contextlib.suppress(AssertionError):  # the assertions below say what is missing
            await until_so(lambda: all(map(done, people)), "all is delivered and answered", within_s=RECOVERY_TIMEOUT_S)
        await until(
            lambda: is_shared_by(store, settings, 1), "the other process serves all users", within_s=RECOVERY_TIMEOUT_S
        )
        for person in people:
            assert await person.say("status"), "the service continues"
    for person in people:
        assert entries(person) == list(range(1, VERSIONS + 1)), "each entry once and in order"
        assert answered(person, threads[person.jid]) == threads[person.jid], "each command once and in order"
        ids = [message.id for message in person.received]
        assert len(ids) == len(set(ids)), "no message id is received twice"
