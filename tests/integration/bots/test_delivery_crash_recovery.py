"""A bot that is killed at any step of a delivery: its successor loses and repeats nothing, and keeps the order."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from bots.cluster.partitions import ALL_PARTITIONS, AssignedUsers
from bots.delivery import batch_sender, resend_policy
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.xmpp.events import Receipt
from service.clock import SystemClock
from service.feeds.entries.duplicate_articles import hash_version
from service.model import Change, Entry
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.client.redis_client import RedisClient
from service.users.filters import parse_rule
from service.users.preferences import FOR_ALL, Preferences
from tests.support.channels import change, make_channel
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("login", ["component"])

STRIDE = 6
"""Every sixth step is tested as the moment of a kill; the first one is random."""
ANN, BEN = "ann@localhost", "ben@localhost"
"""Ann's client sends receipts, Ben's sends none; Ben filters entries about crypto, Ann gets their images."""
TOLD = {
    ANN: ["Entry one", "Entry crypto", "Better one", "Entry two", "Entry three"],
    BEN: ["Entry one", "Better one", "Entry two", "Entry three"],
}
WITH_IMAGES = [
    "Entry one", "one.png", "Entry crypto", "crypto.png", "Better one", "Entry two", "two.png", "Entry three",
    "three.png",
]  # fmt: skip


class Killed:
    """A process that is killed before its step of this number: from then on, it has no effect."""

    def __init__(self, at: float) -> None:
        self._left = at
        self.steps = 0
        self.is_dead = asyncio.Event()
        self.is_over = asyncio.Event()

    async def step(self) -> None:
        """Return if the process is alive; otherwise wait for the end of the test."""
        self.steps += 1
        if self.steps > self._left:
            self.is_dead.set()
        if self.is_dead.is_set():
            await self.is_over.wait()
            raise asyncio.CancelledError


class KillableLink(RedisClient):
    """The Redis client of a process that may be killed."""

    process: Killed

    async def call_many(self, commands: Sequence[Any]) -> list[Any]:
        await self.process.step()
        return await super().call_many(commands)

    async def call_many_once(self, commands: Sequence[Any]) -> list[Any]:
        await self.process.step()
        return await super().call_many_once(commands)


class Server:
    """An XMPP server whose users are online, to which one process after the other sends."""

    def __init__(self) -> None:
        self.messages: dict[str, list[tuple[str, str]]] = {ANN: [], BEN: []}

    def told(self, jid: str) -> list[str]:
        """The entries of each message sent to a user, each message once, in order."""
        return [news for news in self.told_with_images(jid) if not news.endswith(".png")]

    def told_with_images(self, jid: str) -> list[str]:
        """The entries and images of each message sent to a user, each message once, in order."""
        shown = r"(?:Entry|Better) \w+|\w+\.png"
        return [news for body in dict(self.messages[jid]).values() for news in re.findall(shown, body)]


class ServerLink:
    """The XMPP session of one process."""

    address = session_jid = "feeds.localhost"
    is_account = False

    def __init__(self, server: Server, process: Killed) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.rooms: set[str] = set()
        self.delivery: OutboxConsumer
        self._server, self._process = server, process

    async def send(self, stanzas: Sequence[str]) -> None:
        """Accept the stanzas; Ann's client sends receipts."""
        await self._process.step()
        for stanza in map(fromstring, stanzas):
            self._server.messages[stanza.attrib["to"]].append((stanza.attrib["id"], stanza.findtext("body", "")))
            if stanza.find("{urn:xmpp:receipts}request") is not None:
                receipt = Receipt(stanza.attrib["to"], stanza.attrib["id"])
                asyncio.get_running_loop().call_soon(self.delivery.on_receipt, receipt)
        await self._process.step()

    def send_unconfirmed(self, stanza: str) -> None:
        """Accept the stanza if the process is alive."""
        element = fromstring(stanza)  # noqa: S314 - we wrote it
        if not self._process.is_dead.is_set() and element.tag == "message":
            self._server.messages[element.attrib["to"]].append((element.attrib["id"], element.findtext("body", "")))


@asynccontextmanager
async def started(settings: Settings, server: Server, process: Killed) -> AsyncIterator[None]:
    """Run delivery in a process that may be killed; it ends with the context."""
    link, clock = ServerLink(server, process), SystemClock()
    redis = KillableLink(settings)
    redis.process = process
    store = Store(redis)
    assigned_users = AssignedUsers(store.home_addresses, clock, link.address)
    assigned_users.assign(ALL_PARTITIONS)
    link.delivery = OutboxConsumer(store, link, clock, assigned_users, 1_000.0)
    delivering = asyncio.create_task(link.delivery.run())
    link.delivery.on_session_started()
    try:
        yield
    finally:
        process.is_over.set()
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)
        await store.close()


async def queue(store: Store) -> None:
    """Queue entries, an edit, and more entries of one channel for both users, one part per version."""
    await store.redis.call("FLUSHALL")
    channel = await make_channel(store)
    for jid in (ANN, BEN):
        await store.subscriptions.subscribe(jid, channel.id)
        await store.users.mark_welcomed(jid)
    await store.users.mark_receipts([user_id(ANN)])
    await store.preferences.put(BEN, FOR_ALL, Preferences(rules=(parse_rule("crypto", allow=False),)))
    await store.preferences.put(ANN, FOR_ALL, Preferences(images=True))
    added = ("addition", "Entry one"), ("addition", "Entry crypto"), ("replacement", "Better one")
    more = ("addition", "Entry two"), ("addition", "Entry three")
    for version, (kind, title) in enumerate(added + more, start=1):
        key = title.split()[1]
        entry = Entry(key, title, f"https://example.org/{key}", image=f"https://example.org/{key}.png")
        delta = await change(store, channel, Change(kind, entry), base=version)  # type: ignore[arg-type] # one of two kinds
        uids = [user_id(jid) for jid in (ANN, BEN)]
        await store.outbox.enqueue(uids, channel.id, delta.version, 2_000.0, hash_version(delta))


async def outbox_is_empty(store: Store) -> bool:
    return not await store.outbox.count_waiting()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "MAX_ITEMS", 1)
    monkeypatch.setattr(resend_policy, "RECEIPT_TIMEOUT_IF_UNSEEN_S", 0.05)


async def test_a_successor_continues_after_a_kill_at_any_step(store: Store, settings: Settings) -> None:
    await queue(store)
    server, process = Server(), Killed(float("inf"))
    async with started(settings, server, process):
        await until(lambda: outbox_is_empty(store), "all is delivered")
    assert {jid: server.told(jid) for jid in TOLD} == TOLD
    assert server.told_with_images(ANN) == WITH_IMAGES
    assert [len(server.messages[jid]) for jid in TOLD] == [len(WITH_IMAGES), len(TOLD[BEN])]
    assert process.steps > 40
    for step in range(random.randrange(STRIDE), process.steps, STRIDE):  # noqa: S311 - any will do
        await queue(store)
        server, process = Server(), Killed(step)
        async with started(settings, server, process):
            await asyncio.wait_for(process.is_dead.wait(), 10)
            async with started(settings, server, Killed(float("inf"))):
                await until(lambda: outbox_is_empty(store), f"all is delivered after a kill before step {step}")
        assert {jid: server.told(jid) for jid in TOLD} == TOLD, step
        seen = server.told_with_images(ANN)  # an image may be lost, but is neither repeated nor late
        assert seen == [news for news in WITH_IMAGES if news in seen], step
        assert server.messages[ANN][0][0].startswith(user_id(ANN))
