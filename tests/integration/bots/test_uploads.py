"""Lists of feeds as files (XEP-0363): people send theirs, and get theirs, through a real server."""

from io import BytesIO

import aiohttp
import pytest

from bots.xmpp.stanzas import message, shared_file
from service.feeds import opml, opml_parser
from service.feeds.opml import OpmlSubscription
from service.model import Channel
from service.store import Store
from tests.support.bot_in_process import Person
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.client_software import software


async def uploaded(client: ChatClient, body: bytes, name: str) -> str:
    """Upload a file as a person's client does, and return its URL."""
    stream = software(client)
    stream.register_plugin("xep_0363")
    url = await stream.plugin["xep_0363"].upload_file(name, len(body), "text/xml", input_file=BytesIO(body), timeout=10)
    return str(url)


def send_file(client: ChatClient, url: str) -> None:
    """Send a file as clients do: a message that is nothing but its URL."""
    client.send_raw(message(f"{client.jid}/test", client.bot_jid, "the file", shared_file(url)))


async def channels(store: Store, count: int) -> list[Channel]:
    return [await make_channel(store, f"https://example.org/{number}/a-feed.xml") for number in range(count)]


@pytest.mark.usefixtures("bot")
async def test_a_file_that_a_person_sends_is_imported(store: Store, person: Person) -> None:
    alice = await person()
    known = await channels(store, 3)
    feeds = [OpmlSubscription(channel.url, "A feed") for channel in known]
    send_file(alice, await uploaded(alice, opml.write("Mine", feeds), "feeds.xml"))
    await alice.wait_for(lambda received: "3 feeds" in received.body)
    await alice.wait_for(lambda received: "3 new subscriptions" in received.body)
    assert {held.channel for held in await store.subscriptions.of_user(alice.jid)} == {each.id for each in known}


@pytest.mark.usefixtures("bot")
async def test_a_file_that_is_no_list_is_refused_in_words(person: Person) -> None:
    alice = await person()
    send_file(alice, await uploaded(alice, b"<html>a picture of a cat</html>", "cat.html"))
    await alice.wait_for(lambda received: "not OPML" in received.body)
    send_file(alice, await uploaded(alice, b"<" * 6_000_000, "large.opml"))
    await alice.wait_for(lambda received: "too large" in received.body)
    assert "no subscriptions" in await alice.say("list")


@pytest.mark.usefixtures("bot")
async def test_a_long_list_goes_out_as_a_file_that_can_be_sent_in_again(store: Store, person: Person) -> None:
    alice, bob = await person(), await person()
    known = await channels(store, 60)
    for channel in known:
        await store.subscriptions.subscribe(alice.jid, channel.id)
    assert "60 subscriptions" in await alice.say("export")
    told = await alice.wait_for(lambda received: bool(received.file))
    assert told.body == told.file, "clients show only what is nothing but a file as one"
    async with aiohttp.ClientSession() as http, http.get(told.file) as answer:
        assert {feed.url for feed in opml_parser.parse(await answer.read()).feeds} == {channel.url for channel in known}
    send_file(bob, told.file)
    await bob.wait_for(lambda received: "60 new subscriptions" in received.body)
