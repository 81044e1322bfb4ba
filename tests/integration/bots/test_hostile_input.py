"""Hostile stanzas through a real server: the bot continues to serve everybody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from slixmpp import ComponentXMPP, Message

from bots.bot import Bot
from bots.sessions import chat_session, loop_protection
from service.embedded.private_prosody import PrivateProsody
from service.feeds.entries.version_parts import VersionParts
from service.feeds.parsing.html_text import remove_invalid_chars
from service.model import Change, Entry
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, knows_receipts, moved, serving, tell
from tests.support.channels import change, make_channel
from tests.support.naughty_strings import STRINGS
from tests.support.prosody import SECRET, STRANGERS, ProsodyWithStrangers
from tests.support.waiting import until, until_so

CARBON = (
    "<received xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'>"
    "<message from='alice@localhost' type='chat'><body>status</body></message></forwarded></received>"
)


@pytest.fixture
def login() -> str:
    """Log in as a component, which has no stream management and is more easily disturbed."""
    return "component"


def message(to: str, *, kind: str = "chat", ident: str = "x", body: str = "status", inside: str = "") -> str:
    """Return a message stanza."""
    content = f"<body>{body}</body>" if body else ""
    return f"<message to={quoteattr(to)} type='{kind}' id={quoteattr(ident)}>{content}{inside}</message>"


async def test_errors_history_and_forged_carbons_are_not_answered(bot: Bot, person: Person) -> None:
    eve = await person()
    address = bot.connection.address
    for kind in ("groupchat", "headline", "error"):
        eve.send_raw(message(address, kind=kind))
    eve.send_raw(message(address, inside=CARBON))
    eve.send_raw(message(address, inside="<delay xmlns='urn:xmpp:delay' stamp='2020-01-01T00:00:00Z'/>"))
    await eve.say("list")
    assert len(eve.received) == 1


async def test_a_message_from_the_bots_own_address_is_not_answered(bot: Bot, person: Person) -> None:
    bob = await person()
    address = bot.connection.address
    bot.connection.send_unconfirmed(
        f"<message from='{address}' to='{address}' type='chat'><body>status</body></message>"
    )
    assert await bob.say("status")
    assert bot.connection.connected.is_set()


async def test_every_hostile_string_is_answered(bot: Bot, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without characters that XML forbids, for which a server ends the sender's stream, and without quotations."""
    monkeypatch.setattr(loop_protection, "MAX_MISUNDERSTOOD", len(STRINGS))
    lines = [line for line in map(remove_invalid_chars, STRINGS) if line and not line.startswith("> ")]
    people = await asyncio.gather(*(person() for _ in range(8)))
    for number, line in enumerate(lines):
        people[number % 8].send(line, thread=f"thread {number} {line[:50]}")
    await asyncio.gather(*(eve.say("status", timeout_s=120) for eve in people))
    assert sum(len(eve.received) for eve in people) == len(lines) + 8
    assert all(heard.body for eve in people for heard in eve.received)
    assert bot.connection.connected.is_set()


async def test_hostile_titles_are_delivered_in_every_language(bot: Bot, person: Person, store: Store) -> None:
    people = await asyncio.gather(person(), person())
    await people[1].say("sprache deutsch")
    channel = await make_channel(store)
    for eve in people:
        await store.subscriptions.subscribe(eve.jid, channel.id)
    entries = [Entry(str(number), title, "", title) for number, title in enumerate(STRINGS)]
    changes = [Change("addition", entry) for entry in entries]
    for base in range(1, 12):
        delta = await change(store, channel, *changes[base::11], base=base)
        await store.outbox.enqueue(
            [user_id(eve.jid) for eve in people], channel.id, delta.version, 2_000.0, VersionParts()
        )
    for eve in people:
        await eve.wait_for(lambda heard: heard.body.startswith("*A feed*"))
        assert await eve.say("show #1 10")
    assert bot.connection.connected.is_set()


async def test_messages_with_hostile_nicknames_are_answered(bot: Bot, person: Person) -> None:
    """Nicknames as in XEP-0172, without characters that XML forbids."""
    eve = await person()
    some = STRINGS[::8]
    for name in some:
        nick = f"<nick xmlns='http://jabber.org/protocol/nick'>{escape(remove_invalid_chars(name)[:500])}</nick>"
        eve.send_raw(message(bot.connection.address, body="list", inside=nick))
    await eve.say("status")
    assert len(eve.received) == len(some) + 1
    assert bot.connection.connected.is_set()


@pytest.mark.parametrize(
    "inside",
    [
        f"<thread>{'>' * 160_000}</thread>",
        f"<thread>{'&quot;' * 25_000}</thread><request xmlns='urn:xmpp:receipts'/>",
    ],
)
async def test_the_size_of_an_answer_does_not_depend_on_the_message(bot: Bot, person: Person, inside: str) -> None:
    """Ids and threads that an answer repeats are short; an answer too long for the server would end the stream."""
    eve, bob = await asyncio.gather(person(), person())
    eve.send_raw(message(bot.connection.address, ident=">" * 20_000, inside=inside))
    assert await eve.say("list")
    assert await bob.say("list")


async def test_a_message_of_250_kb_is_answered(bot: Bot, person: Person) -> None:
    eve = await person()
    eve.send_raw(message(bot.connection.address, body="a" * 250_000, inside="<thread>long</thread>"))
    assert "help" in (await eve.wait_for(lambda heard: heard.thread == "long")).body


async def test_a_message_too_large_for_the_server_ends_only_the_senders_session(bot: Bot, person: Person) -> None:
    eve, bob = await asyncio.gather(person(), person())
    eve.send_raw(message(bot.connection.address, body="a" * 300_000))
    assert await bob.say("status")
    assert bot.connection.connected.is_set()


async def test_a_flood_of_commands_is_bounded_and_others_are_served(bot: Bot, person: Person) -> None:
    eve, bob = await asyncio.gather(person(), person())
    for _ in range(10):
        eve.send_raw(message(bot.connection.address) * 1_000)
        assert await bob.say("status")
    assert len(eve.received) < 1_000
    assert sum(len(each.queue) for each in bot._chat_sessions._sessions.values()) <= 100


async def test_a_response_is_accepted_only_from_the_recipient_of_the_request(bot: Bot, person: Person) -> None:
    """Knowing the id of a request is not enough to respond to it."""
    eve = await person()
    await eve.say("status")
    confirmed = asyncio.get_running_loop().create_future()
    bot.connection._requests["known"] = ("localhost", confirmed)
    eve.send_raw(f"<iq to='{bot.connection.address}' type='result' id='known'/>")
    await eve.say("status")
    assert not confirmed.done()


async def test_a_ping_from_another_user_does_not_complete_the_bots_own_ping(bot: Bot, person: Person) -> None:
    """A component pings itself; a ping from another sender with the same id is an ordinary request."""
    eve = await person()
    await eve.say("status")
    confirmed = asyncio.get_running_loop().create_future()
    bot.connection._requests["known"] = (bot.connection.address, confirmed)
    eve.send_raw(f"<iq to='{bot.connection.address}' type='get' id='known'><ping xmlns='urn:xmpp:ping'/></iq>")
    await eve.say("status")
    assert not confirmed.done()


async def test_the_bot_does_not_respond_to_its_own_ping(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bot does not respond to its own ping, because the response would queue behind other stanzas."""
    send = bot.connection._stream.send_raw
    written: list[str] = []

    def record(stanza: str) -> None:
        written.append(stanza)
        send(stanza)

    monkeypatch.setattr(bot.connection._stream, "send_raw", record)
    await bot.connection.send([message("nobody@localhost")])
    assert [stanza for stanza in written if "type='result'" in stanza] == []


async def test_a_forged_bounce_or_receipt_affects_nobody_else(bot: Bot, store: Store, person: Person) -> None:
    alice, eve = await asyncio.gather(person(), person())
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await alice.say("status")
    await until(lambda: knows_receipts(store, alice), "the bot knows that alice's client sends receipts")
    alice.give_receipts(willing=False)
    await tell(store, [alice], channel, "new")
    news = await alice.wait_for(lambda heard: "Entry new" in heard.body)
    forged = f"<received xmlns='urn:xmpp:receipts' id={quoteattr(news.id)}/>"
    eve.send_raw(message(bot.connection.address, body="", inside=forged))
    eve.send_raw(message(bot.connection.address, kind="error", ident=news.id))
    await eve.say("status")

    async def depth() -> bool:
        return await store.outbox.count_waiting() == 1

    await until(depth, "alice's message still waits for her own receipt")
    await tell(store, [alice], channel, "next", base=2)
    await alice.wait_for(lambda heard: "Entry next" in heard.body)


@pytest.fixture
def remembering_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of remembered questions to two."""
    monkeypatch.setattr(chat_session, "_MAX_CACHED_USERS", 2)


@pytest.mark.usefixtures("remembering_two", "bot")
async def test_the_number_of_remembered_questions_is_limited(person: Person) -> None:
    people = [await person() for _ in range(3)]
    for each in people:
        assert "Did you mean" in await each.say("lst")
    assert "I'm not waiting for an answer" in await people[0].say("yes")
    assert "no subscriptions" in await people[2].say("yes")


async def test_users_with_strange_addresses_on_other_servers_are_served(
    own_prosody_with_strangers: PrivateProsody, settings: Settings, store: Store
) -> None:
    """An invalid address affects only itself: the server returns messages to it."""
    strange = ("{0}", "{it}", "%s%n", "..", "x" * 1_000, "\N{FIRECRACKER}")
    impossible = ("a b", "<b>&amp;", "'\"", "\u202eevil", "_:*?[x]")
    own_settings = await moved(settings, own_prosody_with_strangers)
    heard: dict[str, str] = {}
    async with own_prosody_with_strangers as server, serving(own_settings, store), strangers(server, heard) as say:
        channel = await make_channel(store)
        for name in (*impossible, *strange):
            say(f"{name}@{STRANGERS}/{{1}}\N{HOUSE BUILDING}", own_settings.xmpp_jid, "status")
            await store.subscriptions.subscribe(f"{name}@{STRANGERS}", channel.id)
        delta = await tell(store, [], channel, "new")
        people = [f"{name}@{STRANGERS}" for name in (*impossible, *strange)]
        await store.outbox.enqueue([user_id(jid) for jid in people], channel.id, delta.version, 2_000.0, VersionParts())
        for name in strange:
            jid = f"{name}@{STRANGERS}"
            await until_so(lambda: "Entry new" in heard.get(jid, ""), f"{name} gets the entry")  # noqa: B023 - awaited at once
            await until_so(lambda: f"{jid}/{{1}}\N{HOUSE BUILDING}" in heard, f"{name} is answered")  # noqa: B023 - same


@contextlib.asynccontextmanager
async def strangers(server: PrivateProsody, heard: dict[str, str]) -> AsyncIterator[Callable[[str, str, str], None]]:
    """Yield a function that sends messages from any user of another server; ``heard`` gets the answers by receiver."""
    component = ComponentXMPP(STRANGERS, SECRET, "127.0.0.1", server.component_port)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    ready = asyncio.Event()

    def hear(stanza: Any) -> Any:
        if isinstance(stanza, Message):
            body = stanza.xml.findtext("{*}body")
            heard[stanza.xml.get("to", "")] = body or ""
            return None
        return stanza

    component.add_filter("in", hear)
    component.add_event_handler("session_start", lambda _: ready.set())
    component.connect()

    def say(sender: str, to: str, body: str) -> None:
        stanza = f"<message from={quoteattr(sender)} to='{to}' type='chat'><body>{body}</body></message>"
        component.send_raw(stanza)

    try:
        await asyncio.wait_for(ready.wait(), 20)
        yield say
    finally:
        await component.disconnect(wait=1.0, ignore_send_queue=True)
        sender = component._run_out_filters
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


@pytest.fixture
def own_prosody_with_strangers(tmp_path: Path) -> PrivateProsody:
    """A Prosody with users of another server; not started yet."""
    return ProsodyWithStrangers(tmp_path / "prosody")
