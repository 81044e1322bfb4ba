"""Public channels as pubsub nodes: each entry once, whatever is killed, and nothing of what is private."""

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
from bots.pubsub.atom_items import NS_ATOM, node_uri
from service.embedded.prosody import PrivateProsody
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
    """A bot that publishes, and looks after that often."""
    often = {"maintenance_interval_s": 0.5, "lease_ttl_s": 1.0}
    return settings.model_copy(update={"pubsub_service": prosody.pubsub_jid, **often})


class Reader:
    """A person's software that follows nodes."""

    def __init__(self, client: ChatClient, service: str) -> None:
        self._stream = software(client)
        self._service = service
        self.told: list[tuple[str, Element]] = []
        self.deleted: list[str] = []
        self._stream.add_event_handler("pubsub_publish", self._published)
        self._stream.add_event_handler("pubsub_delete", self._gone)

    def _published(self, message: Any) -> None:
        for item in message.xml.iterfind(f"{{http://jabber.org/protocol/pubsub#event}}event/{ITEM}"):
            self.told.append((item.get("id", ""), item[0]))

    def _gone(self, message: Any) -> None:
        self.deleted.append(message["pubsub_event"]["delete"]["node"])

    @property
    def titles(self) -> list[str]:
        """The titles of all items that came, in order."""
        return [entry.findtext(f"{{{NS_ATOM}}}title", "") for _, entry in self.told]

    async def nodes(self) -> dict[str, str]:
        """Return the titles of all nodes there are."""
        found = await self._stream.plugin["xep_0030"].get_items(jid=self._service, timeout=10)
        return {node: name for _, node, name in found["disco_items"]["items"] if node}

    async def kind(self, node: str) -> str:
        """Return of which kind a node says it is."""
        found = await self._stream.plugin["xep_0030"].get_info(jid=self._service, node=node, timeout=10)
        return str(found.xml.findtext(".//{jabber:x:data}field[@var='pubsub#type']/{jabber:x:data}value", ""))

    async def entries(self, node: str) -> dict[str, Element]:
        """Return the items on a node by id."""
        found = await self._stream.plugin["xep_0060"].get_items(self._service, node, timeout=10)
        return {item["id"]: item["payload"] for item in found["pubsub"]["items"]}

    async def follow(self, node: str) -> None:
        """Subscribe to a node."""
        await self._stream.plugin["xep_0060"].subscribe(self._service, node, timeout=10)


async def arrived(store: Store, settings: Settings, channel: Channel, version: int) -> None:
    """Wait until a channel is published up to a version."""

    async def is_there() -> bool:
        position = (await store.pubsub_nodes.positions(settings.pubsub_service, [channel.id])).get(channel.id)
        return position is not None and position.version == version

    await until(is_there, f"version {version} is published")


async def test_a_public_channels_entries_are_items_and_corrections_take_their_places(
    store: Store, settings: Settings, person: Person
) -> None:
    channel = await make_channel(store, "https://example.org/public", listed=True)
    reader = Reader(await person(), settings.pubsub_service)
    async with serving(settings, store) as bot:
        await arrived(store, settings, channel, 1)
        await reader.follow(channel.id)
        assert (await reader.nodes())[channel.id] == "A feed"
        assert await reader.kind(channel.id) == "urn:xmpp:pubsub-social-feed:1"
        assert await RequestHandler(bot._desk._house, "").node_of(channel.id) == node_uri(
            settings.pubsub_service, channel.id
        )
        assert len(await reader.entries(channel.id)) == 1, "what was there before is on it, and nobody is told of that"
        await publish(store, channel, "a", "b")
        await store.pubsub_nodes.notify_changed(channel.id)
        await until_so(lambda: reader.titles == ["Entry a", "Entry b"], "both are told in order")
        edited = Entry("a", "Entry a, corrected", "https://example.org/a", "In other words.")
        await change(store, channel, Change("replacement", edited), base=2)
        await store.pubsub_nodes.notify_changed(channel.id)
        await until_so(lambda: reader.titles[2:] == ["Entry a, corrected"], "the correction is told")
        assert reader.told[2][0] == reader.told[0][0], "it takes the place of what it corrects"
        assert reader.told[2][1].findtext(f"{{{NS_ATOM}}}content") == "In other words."
        assert len(await reader.entries(channel.id)) == 3


async def test_what_is_public_no_more_has_no_node_and_what_is_private_never_had_one(
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
        await arrived(store, settings, channel, 1)
        await reader.follow(channel.id)
        await store.subscriptions.unsubscribe("two@example.org", channel.id)
        await until_so(lambda: channel.id in reader.deleted, "the node is deleted, and its subscribers are told")
        assert not {channel.id, private.id, secret.id} & (await reader.nodes()).keys()
        assert await store.pubsub_nodes.channel_ids(settings.pubsub_service) == []


@asynccontextmanager
async def process(settings: Settings, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a bot in a process of its own, and kill it in the end."""
    told = {
        name: str(value.get_secret_value() if name == "xmpp_password" else value)
        for name, value in settings
        if name in settings.model_fields_set
    }
    environment = {f"CORONET_{name.upper()}": value for name, value in told.items()}
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


async def test_each_entry_is_told_once_though_the_bot_is_killed_in_between(
    store: Store, settings: Settings, person: Person, tmp_path: Path
) -> None:
    channel = await make_channel(store, "https://example.org/much", listed=True)
    reader = Reader(await person(), settings.pubsub_service)
    log = tmp_path / "bot.log"
    async with process(settings, log):
        await arrived(store, settings, channel, 1)
        await reader.follow(channel.id)
        for version in range(1, 11):
            await publish(store, channel, f"{version}a", f"{version}b", base=version)
        await until_so(lambda: len(reader.told) >= 5, "some are told")
    assert len(reader.told) < 20, "it was killed in between"
    async with process(settings, log):
        await arrived(store, settings, channel, 11)
    wanted = Counter(f"Entry {version}{letter}" for version in range(1, 11) for letter in "ab")
    await until_so(lambda: Counter(reader.titles) == wanted, "each is told once")


async def test_who_talks_to_the_bot_does_not_notice_a_service_that_never_answers(
    store: Store, settings: Settings, person: Person
) -> None:
    silent, alice = await person(), await person()
    await silent.vanish()  # its server keeps for it what it is asked
    listed = [await make_channel(store, f"https://example.org/silent/{n}", listed=True) for n in range(30)]
    silence = settings.model_copy(update={"pubsub_service": f"{silent.jid}/test"})
    async with serving(silence, store):

        async def begun() -> list[str]:
            return await store.pubsub_nodes.channel_ids(silence.pubsub_service)

        await store.subscriptions.subscribe(alice.jid, listed[0].id)
        await until(begun, "it has begun to publish")
        assert "#1" in await alice.say("list")
        await tell(store, [alice], listed[0], "news")
        await alice.wait_for(lambda received: "Entry news" in received.body)
        assert len(await begun()) == 1, "one thing is asked at a time"


async def test_what_the_service_lost_is_made_again(store: Store, settings: Settings, person: Person) -> None:
    channel = await make_channel(store, "https://example.org/lost", listed=True)
    client = await person()
    reader = Reader(client, settings.pubsub_service)
    async with serving(settings, store) as bot:
        await arrived(store, settings, channel, 1)
        forgotten = f"<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'><delete node='{channel.id}'/></pubsub>"
        await bot.connection.request(settings.pubsub_service, "set", forgotten)
        await publish(store, channel, "new")
        await arrived(store, settings, channel, 2)
        assert len(await reader.entries(channel.id)) == 2
