"""Features of XMPP clients on a real server: chat markers, link previews, blocking and carbons."""

import asyncio
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from structlog.testing import capture_logs

from bots.bot import Bot
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, bounced, knows_receipts, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.waiting import until, until_so

MARKERS = "urn:xmpp:chat-markers:0"
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"


def stanzas_to(client: ChatClient) -> list[Any]:
    """Collect the stanzas of the messages that a client receives."""
    found: list[Any] = []

    def collected(stanza: Any) -> Any:
        if stanza.name == "message":
            found.append(stanza.xml)
        return stanza

    client._xmpp.add_filter("in", collected)
    return found


async def nothing_waits(store: Store) -> bool:
    return not await store.outbox.count_waiting()


async def test_a_requested_marker_is_sent_once(bot: Bot, person: Person) -> None:
    alice = await person()
    came = stanzas_to(alice)
    address = bot.connection.address
    alice.send_raw(
        f"<message to='{address}' type='chat' id='q1'><body>list</body><thread>t1</thread>"
        f"<markable xmlns='{MARKERS}'/></message>"
    )
    await alice.wait_for(lambda message: message.thread == "t1")
    await alice.say("status")
    marked = [each for each in came if each.find(f"{{{MARKERS}}}displayed") is not None]
    (marker,) = marked
    assert marker.find(f"{{{MARKERS}}}displayed").get("id") == "q1"
    assert marker.findtext("{*}thread") == "t1"
    assert marker.find("{*}body") is None
    again = f"<displayed xmlns='{MARKERS}' id='{marker.get('id')}'/><markable xmlns='{MARKERS}'/>"
    alice.send_raw(f"<message to='{address}' type='chat' id='m'>{again}</message>")
    await alice.say("status")
    assert len([each for each in came if each.find(f"{{{MARKERS}}}displayed") is not None]) == 1, "no marker of markers"


async def test_a_marker_completes_a_message_like_a_receipt(bot: Bot, person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    bob.give_receipts(willing=False)
    channel = await make_channel(store)
    for client in (alice, bob):
        await store.subscriptions.subscribe(client.jid, channel.id)
        await client.say("status")
    await until(lambda: knows_receipts(store, alice), "the bot knows that her client sends receipts")
    alice.give_receipts(willing=False)
    await tell(store, [alice, bob], channel, "new")
    for client in (alice, bob):
        message = await client.wait_for(lambda message: "Entry new" in message.body)
        await client.say("status")
        if client is alice:
            flying = await store.outbox.in_flight([user_id(alice.jid)])
            assert [batch.message_id for batch in flying[user_id(alice.jid)]] == [message.id]
        mark = f"<displayed xmlns='{MARKERS}' id='{message.id}'/>"
        client.send_raw(f"<message to='{bot.connection.address}' type='chat' id='x'>{mark}</message>")
        await client.say("status")
    await until(lambda: nothing_waits(store), "the marker is taken")
    assert not await knows_receipts(store, bob)


@pytest.mark.usefixtures("bot")
async def test_only_a_message_with_a_single_link_has_a_preview(person: Person, store: Store) -> None:
    alice = await person()
    came = stanzas_to(alice)
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await alice.say("set #1 format $link")
    await tell(store, [alice], channel, "one")
    await alice.wait_for(lambda message: message.body.endswith("https://example.org/one"))
    await tell(store, [alice], channel, "two", "three", base=2)
    await alice.wait_for(lambda message: message.body.endswith("https://example.org/three"))
    said = [each.find(f"{RDF}Description") for each in came if "https://" in each.findtext("{*}body", "")]
    assert [each is not None for each in said] == [True, False]
    assert said[0].get(f"{RDF}about") == "https://example.org/one"
    assert said[0].findtext("{https://ogp.me/ns#}title") == "Entry one"
    assert said[0].findtext("{https://ogp.me/ns#}site_name") == "A feed"


@pytest.mark.usefixtures("bot")
async def test_messages_to_a_user_who_blocked_the_bot_are_delivered_after_unblocking(
    person: Person, store: Store
) -> None:
    alice = await person()
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await alice.say("status")
    await blocking(alice, "block")
    with capture_logs() as logs:
        await tell(store, [alice], channel, "unheard")
        await until_so(lambda: bounced(logs, user_id(alice.jid)), "it comes back")
    assert not alice.notifications
    assert (await store.outbox.in_flight([user_id(alice.jid)]))[user_id(alice.jid)], "it is kept"
    await blocking(alice, "unblock")
    await alice.say("status")
    await alice.wait_for(lambda message: "Entry unheard" in message.body)


async def blocking(client: ChatClient, what: str) -> None:
    """Make a user's server block the bot, or unblock it (XEP-0191)."""
    request = client._xmpp.make_iq_set()
    asked = f"<{what} xmlns='urn:xmpp:blocking'><item jid='{client.bot_jid}'/></{what}>"
    request.append(fromstring(asked))  # noqa: S314 - we wrote it
    await request.send(timeout=10)  # type: ignore[no-untyped-call] # slixmpp left it untyped


async def test_forged_carbons_are_ignored(bot: Bot, person: Person, store: Store) -> None:
    alice, eve = await asyncio.gather(person(), person())
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    address = bot.connection.address
    for what in ("received", "sent"):
        eve.send_raw(
            f"<message to='{address}' type='chat'><{what} xmlns='urn:xmpp:carbons:2'>"
            f"<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' from='{alice.jid}/test' "
            f"to='{address}' type='chat'><body>unsubscribe #1</body></message></forwarded></{what}></message>"
        )
    await eve.say("list")
    assert len(eve.received) == 1
    assert "#1" in await alice.say("list")
