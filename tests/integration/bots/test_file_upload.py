"""OPML lists as files (XEP-0363), sent and received through a real server."""

from io import BytesIO

import aiohttp
import pytest

from bots.xmpp.stanzas import message, shared_file
from service.feeds import opml_parser, opml_writer
from service.feeds.opml_writer import OpmlSubscription
from service.model import Channel
from service.store import Store
from tests.support.bot_in_process import Person
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.client_software import software


async def upload(client: ChatClient, body: bytes, name: str) -> str:
    """Upload a file as a client does, and return its URL."""
    stream = software(client)
    stream.register_plugin("xep_0363")
    url = await stream.plugin["xep_0363"].upload_file(name, len(body), "text/xml", input_file=BytesIO(body), timeout=10)
    return str(url)


def send_file(client: ChatClient, url: str) -> None:
    """Share a file as clients do, by a message whose body is its URL."""
    client.send_raw(message(f"{client.jid}/test", client.bot_jid, "the file", shared_file(url)))


async def make_channels(store: Store, count: int) -> list[Channel]:
    return [await make_channel(store, f"https://example.org/{number}/a-feed.xml") for number in range(count)]


@pytest.mark.usefixtures("bot")
async def test_an_uploaded_opml_file_is_imported(store: Store, person: Person) -> None:
    alice = await person()
    known = await make_channels(store, 3)
    feeds = [OpmlSubscription(channel.url, "A feed") for channel in known]
    send_file(alice, await upload(alice, opml_writer.write("Mine", feeds), "feeds.xml"))
    await alice.wait_for(lambda received: "3 feeds" in received.body)
    await alice.wait_for(lambda received: "3 new subscriptions" in received.body)
    assert {held.channel for held in await store.subscriptions.of_user(alice.jid)} == {each.id for each in known}


@pytest.mark.usefixtures("bot")
async def test_a_file_that_is_not_opml_is_refused_with_a_reason(person: Person) -> None:
    alice = await person()
    send_file(alice, await upload(alice, b"<html>a picture of a cat</html>", "cat.html"))
    await alice.wait_for(lambda received: "not OPML" in received.body)
    send_file(alice, await upload(alice, b"<" * 6_000_000, "large.opml"))
    await alice.wait_for(lambda received: "larger than 5 MB" in received.body)
    assert "no subscriptions" in await alice.say("list")


@pytest.mark.usefixtures("bot")
async def test_a_long_export_is_a_file_that_can_be_imported(store: Store, person: Person) -> None:
    alice, bob = await person(), await person()
    known = await make_channels(store, 60)
    for channel in known:
        await store.subscriptions.subscribe(alice.jid, channel.id)
    assert "60 subscriptions" in await alice.say("export")
    shared = await alice.wait_for(lambda received: bool(received.file))
    assert shared.body == shared.file, "clients show a message as a file only if its body is the URL"
    async with aiohttp.ClientSession() as http, http.get(shared.file) as response:
        assert {feed.url for feed in opml_parser.parse(await response.read()).feeds} == {
            channel.url for channel in known
        }
    send_file(bob, shared.file)
    await bob.wait_for(lambda received: "60 new subscriptions" in received.body)
