"""Public channels as pubsub nodes: each entry once, although processes are killed, and no private channels."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from bots.dialogue.request_handler import RequestHandler
from bots.pubsub.atom_items import node_uri
from service.embedded.private_prosody import PrivateProsody
from service.feeds.atom_writer import NS_ATOM
from service.model import Change, Channel, Entry
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import Person, serving, tell
from tests.support.channels import change, make_channel, publish
from tests.support.chat import ChatClient
from tests.support.client_software import software
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.parametrize("login", ["component"])

ITEM = "{http://jabber.org/protocol/pubsub#event}items/{http://jabber.org/protocol/pubsub#event}item"


@pytest.fixture
def settings(settings: Settings, prosody: PrivateProsody) -> Settings:
    """Settings of a bot that publishes nodes and scans them frequently."""
    short_intervals = {"maintenance_interval_s": 0.5, "lease_ttl_s": 1.0}
    return settings.model_copy(update={"pubsub_service": prosody.pubsub_jid, **short_intervals})


class Reader:
    """A client that subscribes to nodes."""

    def __init__(self, client: ChatClient, service: str) -> None:
        self._stream = software(client)
        self._service = service
        self.notifications: list[tuple[str, Element]] = []
        self.deleted: list[str] = []
        self._stream.add_event_handler("pubsub_publish", self._on_publish)
        self._stream.add_event_handler("pubsub_delete", self._on_delete)

    def _on_publish(self, message: Any) -> None:
        for item in message.xml.iterfind(f"{{http://jabber.org/protocol/pubsub#event}}event/{ITEM}"):
            self.notifications.append((item.get("id", ""), item[0]))

    def _on_delete(self, message: Any) -> None:
        self.deleted.append(message["pubsub_event"]["delete"]["node"])

    @property
    def titles(self) -> list[str]:
        """Titles of all items received, in order."""
        return [entry.findtext(f"{{{NS_ATOM}}}title", "") for _, entry in self.notifications]

    async def nodes(self) -> dict[str, str]:
        """Return the titles of all nodes of the service."""
        found = await self._stream.plugin["xep_0030"].get_items(jid=self._service, timeout=10)
        return {node: name for _, node, name in found["disco_items"]["items"] if node}

    async def node_type(self, node: str) -> str:
        """Return the type of a node (pubsub#type)."""
        found = await self._stream.plugin["xep_0030"].get_info(jid=self._service, node=node, timeout=10)
        return str(found.xml.findtext(".//{jabber:x:data}field[@var='pubsub#type']/{jabber:x:data}value", ""))

    async def entries(self, node: str) -> dict[str, Element]:
        """Return the payloads of the items on a node, by id."""
        found = await self._stream.plugin["xep_0060"].get_items(self._service, node, timeout=10)
        return {item["id"]: item["payload"] for item in found["pubsub"]["items"]}

    async def subscribe(self, node: str) -> None:
        """Subscribe to the notifications of a node."""
        await self._stream.plugin["xep_0060"].subscribe(self._service, node, timeout=10)


async def wait_until_published(store: Store, settings: Settings, channel: Channel, version: int) -> None:
    """Wait until the node of a channel has all entries up to a version."""

    async def is_there() -> bool:
        position = (await store.pubsub_nodes.positions(settings.pubsub_service, [channel.id])).get(channel.id)
        return position is not None and position.version == version

    await until(is_there, f"version {version} is published")


async def test_entries_are_published_as_items_and_corrections_replace_them(
    store: Store, settings: Settings, person: Person
) -> None:
    channel = await make_channel(store, "https://example.org/public", listed=True)
    reader = Reader(await person(), settings.pubsub_service)
    async with serving(settings, store) as bot:
        await wait_until_published(store, settings, channel, 1)
        await reader.subscribe(channel.id)
        assert (await reader.nodes())[channel.id] == "A feed"
        assert await reader.node_type(channel.id) == "urn:xmpp:pubsub-social-feed:1"
        assert await RequestHandler(bot._chat_sessions._services, "").pubsub_uri(channel.id) == node_uri(
            settings.pubsub_service, channel.id
        )
        assert len(await reader.entries(channel.id)) == 1, "earlier entries are on the node, without notifications"
        await publish(store, channel, "a", "b")
        await store.pubsub_nodes.notify_changed(channel.id)
        await until_so(lambda: reader.titles == ["Entry a", "Entry b"], "subscribers are notified of both in order")
        edited = Entry("a", "Entry a, corrected", "https://example.org/a", "In other words.")
        await change(store, channel, Change("replacement", edited), base=2)
        await store.pubsub_nodes.notify_changed(channel.id)
        await until_so(
            lambda: reader.titles[2:] == ["Entry a, corrected"], "subscribers are notified of the correction"
        )
        assert reader.notifications[2][0] == reader.notifications[0][0], "the correction replaces the item"
        assert reader.notifications[2][1].findtext(f"{{{NS_ATOM}}}content") == "In other words."
        assert len(await reader.entries(channel.id)) == 3


async def test_nodes_of_channels_that_cease_to_be_public_are_deleted(
    store: Store, settings: Settings, person: Person
) -> None:
    channel = await make_channel(store, "https://example.org/for-a-while")
    private = await make_channel(store, "https://example.org/private")
    secret = await make_channel(store, "https://example.org/feed?token=1", listed=True)
    await store.subscriptions.subscribe("one@example.org", private.id)
    for jid in ("one@example.org", "two@example.org", "three@example.org"):
        await store.subscriptions.subscribe(jid, channel.id)
    reader = Reader(await person(), settings.pubsub_service)
    async with serving(settings, store):
        await wait_until_published(store, settings, channel, 1)
        await reader.subscribe(channel.id)
        await store.subscriptions.unsubscribe("two@example.org", channel.id)
        await until_so(lambda: channel.id in reader.deleted, "the node is deleted, and its subscribers are notified")
        assert not {channel.id, private.id, secret.id} & (await reader.nodes()).keys()
        assert await store.pubsub_nodes.channel_ids(settings.pubsub_service) == []


@asynccontextmanager
async def bot_process(settings: Settings, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a bot in its own process, and kill it at the end."""
    values = {
        name: str(value.get_secret_value() if name == "xmpp_password" else value)
        for name, value in settings
        if name in settings.model_fields_set
    }
    environment = {f"CORONET_{name.upper()}": value for name, value in values.items()}
    with log.open("ab") as output:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", "bot"),
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def test_each_entry_is_published_once_although_the_bot_is_killed(
    store: Store, settings: Settings, person: Person, tmp_path: Path
) -> None:
    channel = await make_channel(store, "https://example.org/much", listed=True)
    reader = Reader(await person(), settings.pubsub_service)
    log = tmp_path / "bot.log"
    async with bot_process(settings, log):
        await wait_until_published(store, settings, channel, 1)
        await reader.subscribe(channel.id)
        for version in range(1, 11):
            await publish(store, channel, f"{version}a", f"{version}b", base=version)
        await until_so(lambda: len(reader.notifications) >= 5, "some are published")
    assert len(reader.notifications) < 20, "the bot was killed in between"
    async with bot_process(settings, log):
        await wait_until_published(store, settings, channel, 11)
    expected = Counter(f"Entry {version}{letter}" for version in range(1, 11) for letter in "ab")
    await until_so(lambda: Counter(reader.titles) == expected, "each is published once")


async def test_an_unresponsive_service_does_not_delay_users(store: Store, settings: Settings, person: Person) -> None:
    silent, alice = await person(), await person()
    await silent.vanish()  # its server stores the requests
    listed = [await make_channel(store, f"https://example.org/silent/{n}", listed=True) for n in range(30)]
    unresponsive = settings.model_copy(update={"pubsub_service": f"{silent.jid}/test"})
    async with serving(unresponsive, store):

        async def stored_nodes() -> list[str]:
            return await store.pubsub_nodes.channel_ids(unresponsive.pubsub_service)

        await store.subscriptions.subscribe(alice.jid, listed[0].id)
        await until(stored_nodes, "publishing has begun")
        assert "#1" in await alice.say("list")
        await tell(store, [alice], listed[0], "news")
        await alice.wait_for(lambda received: "Entry news" in received.body)
        assert len(await stored_nodes()) == 1, "one request is sent at a time"


async def test_a_node_that_the_service_lost_is_created_again(store: Store, settings: Settings, person: Person) -> None:
    channel = await make_channel(store, "https://example.org/lost", listed=True)
    client = await person()
    reader = Reader(client, settings.pubsub_service)
    async with serving(settings, store) as bot:
        await wait_until_published(store, settings, channel, 1)
        deletion = f"<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'><delete node='{channel.id}'/></pubsub>"
        await bot.connection.request(settings.pubsub_service, "set", deletion)
        await publish(store, channel, "new")
        await wait_until_published(store, settings, channel, 2)
        assert len(await reader.entries(channel.id)) == 2
