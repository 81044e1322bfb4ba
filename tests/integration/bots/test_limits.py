"""Rate limits and suspensions on a real Prosody; also, two bots do not answer each other endlessly."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from slixmpp import Message
from slixmpp.exceptions import IqError

from bots import command_rate_limits
from bots.bot import Bot
from bots.sessions import adhoc_session
from bots.sessions.loop_protection import MAX_MISUNDERSTOOD
from bots.xmpp import presence_tracker
from service.feeds import opml_writer
from service.feeds.entries.version_parts import VersionParts
from service.feeds.opml_writer import OpmlSubscription
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.host_blocklist import HostBlock
from tests.support.bot_in_process import Person, moved, serving
from tests.support.channels import make_channel, publish
from tests.support.client_software import Errand, where
from tests.support.impostor_server import ROOM, Strangers, strangers
from tests.support.prosody import STRANGERS, ProsodyWithStrangers
from tests.support.room_guest import Guest
from tests.support.waiting import until, until_so

PER_MINUTE = 4


@pytest.fixture
def login() -> str:
    """Log in as a component; the kind of login does not matter here."""
    return "component"


@pytest.fixture
def limited(settings: Settings) -> Settings:
    """Settings with few commands per minute."""
    return settings.model_copy(update={"max_commands_per_minute": PER_MINUTE})


@pytest_asyncio.fixture
async def others(tmp_path: Path, limited: Settings, store: Store) -> AsyncIterator[tuple[Strangers, Bot]]:
    """Another server, and a bot with few commands per minute."""
    own = ProsodyWithStrangers(tmp_path / "prosody")
    mine = await moved(limited, own)
    async with own as server, serving(mine, store) as bot, strangers(server) as theirs:
        yield theirs, bot


async def _pose_as_room(theirs: Strangers, bot: Bot) -> None:
    invitation = f"<x xmlns='jabber:x:conference' jid='{ROOM}'/>"
    theirs.send(f"<message from='mallory@{STRANGERS}/x' to='{bot.connection.address}'>{invitation}</message>")
    await until_so(lambda: any("Hello!" in text for _, text in theirs.messages), "the bot greets the room")
    theirs.messages.clear()


async def test_managers_of_a_room_share_a_rate_limit(others: tuple[Strangers, Bot]) -> None:
    theirs, bot = others
    await _pose_as_room(theirs, bot)
    for number in range(60):
        theirs.say_in_room(bot.connection.address, "alice", f"occupant {number}", "Coronet: list")
    theirs.say("bob@" + STRANGERS, bot.connection.address, "status")
    await until_so(lambda: any(to.startswith("bob@") for to, _ in theirs.messages), "another user is answered")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are answered")
    answers = [text for to, text in theirs.messages if to == ROOM]
    assert (
        len([text for text in answers if "no subscriptions" in text])
        == command_rate_limits.MANAGERS_FACTOR * PER_MINUTE
    )
    assert len([text for text in answers if "That's more than" in text]) == 1


async def test_each_command_in_a_form_counts_toward_the_rate_limit(
    limited: Settings, store: Store, person: Person
) -> None:
    alice = await person()
    for number in range(10):
        channel = await make_channel(store, f"https://example.org/{number}")
        await store.subscriptions.subscribe(alice.jid, channel.id)
    async with serving(limited, store) as bot:
        errand = Errand(alice, where(bot), "unsubscribe")
        await errand.step()
        answer = await errand.step("complete", channel=[f"#{number}" for number in range(1, 11)])
        assert "That's more than 4 commands" in Errand.note(answer)[1]
        assert len(await store.subscriptions.of_user(alice.jid)) == 10 - PER_MINUTE
        assert answer["form"].get_values()["channel"] == [f"#{number}" for number in range(1 + PER_MINUTE, 11)]


async def test_forget_me_does_not_reset_the_rate_limit(limited: Settings, store: Store, person: Person) -> None:
    alice = await person()
    async with serving(limited, store):
        for text in ("forget me", "yes", "list", "list"):
            assert "That's more than" not in await alice.say(text)
        assert "That's more than" in await alice.say("list")


@pytest.mark.usefixtures("bot")
async def test_an_import_respects_the_limit_set_by_an_admin(store: Store, person: Person) -> None:
    alice = await person()
    await alice.say("list")
    await store.people.set_max_subscriptions(user_id(alice.jid), 1)
    feeds = [OpmlSubscription((await make_channel(store, f"https://example.org/{number}")).url) for number in range(3)]
    alice.send(f"import {opml_writer.write('Mine', feeds).decode()}")
    answer = await alice.wait_for(lambda message: "Your list is imported" in message.body)
    assert "1 new subscription" in answer.body
    assert len(await store.subscriptions.of_user(alice.jid)) == 1


@pytest.mark.usefixtures("bot")
async def test_limits_set_by_an_admin_outlive_forget_me(store: Store, person: Person) -> None:
    alice = await person()
    await alice.say("list")
    await store.people.set_max_subscriptions(user_id(alice.jid), 1)
    await alice.say("forget me")
    assert "the limits that an admin set" in await alice.say("yes")
    for number in (1, 2):
        await make_channel(store, f"https://example.org/{number}")
        answer = await alice.say(f"subscribe https://example.org/{number}")
    assert "1 subscription" in answer
    assert len(await store.subscriptions.of_user(alice.jid)) == 1


async def test_a_suspended_room_stays_suspended_after_removing_the_bot(bot: Bot, store: Store, person: Person) -> None:
    alice = await Guest(await person(), f"room-{secrets.token_hex(4)}@rooms.localhost", "alice").open()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    await store.people.set_suspended(user_id(alice.room), suspended=True)
    await alice._xmpp.plugin["xep_0045"].set_role(alice._at, "Coronet", "none")

    async def is_room_deleted() -> bool:
        return not await store.rooms.get(bot.connection.address)

    await until(is_room_deleted, "the room is deleted")
    assert (await store.users.get(alice.room)).suspended
    alice.invite(bot.connection.address)
    await alice.client.say("status")
    alice.say("Coronet: list")
    await until_so(lambda: any(text == "Coronet: list" for _, text in alice.heard), "the command is sent")
    await alice.client.say("status")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are answered")
    assert not any("no subscriptions" in text for _, text in alice.heard)


async def test_another_spelling_of_an_address_is_the_same_user(others: tuple[Strangers, Bot], store: Store) -> None:
    theirs, bot = others
    eve = f"eve@{STRANGERS}"
    theirs.say(eve, bot.connection.address, "list")
    await until_so(lambda: bool(theirs.messages), "eve is answered")
    await store.people.set_suspended(user_id(eve), suspended=True)
    theirs.messages.clear()
    for spelling in ("Eve@strangers.localhost/phone", "\uff45ve@strangers.localhost"):
        theirs.say(spelling, bot.connection.address, "list")
    theirs.say(f"bob@{STRANGERS}", bot.connection.address, "list")
    await until_so(lambda: any(to.startswith("bob@") for to, _ in theirs.messages), "bob is answered")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are answered")
    assert [to for to, _ in theirs.messages] == [f"bob@{STRANGERS}"]


async def test_users_of_a_blocked_domain_are_not_answered_and_keep_their_subscriptions(
    others: tuple[Strangers, Bot], store: Store
) -> None:
    theirs, bot = others
    eve = f"eve@{STRANGERS}"
    theirs.say(eve, bot.connection.address, "list")
    await until_so(lambda: bool(theirs.messages), "eve is answered")
    channel = await make_channel(store)
    await store.subscriptions.subscribe(eve, channel.id)
    await store.blocked_user_domains.add(STRANGERS, HostBlock("ada", 1.0))
    theirs.messages.clear()
    theirs.say(eve, bot.connection.address, "list")
    delta = await publish(store, channel, "while-blocked")
    await store.outbox.enqueue([user_id(eve)], channel.id, delta.version, 2_000.0, VersionParts())

    async def is_dropped() -> bool:
        return not await store.outbox.waiting_users()

    await until(is_dropped, "the queued item is dropped")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are handled")
    assert theirs.messages == []
    assert await store.blocked_user_domains.remove(STRANGERS)
    assert [each.channel for each in await store.subscriptions.of_user(eve)] == [channel.id]
    delta = await publish(store, channel, "afterwards", base=delta.version)
    await store.outbox.enqueue([user_id(eve)], channel.id, delta.version, 2_000.0, VersionParts())
    await until_so(lambda: any("afterwards" in text for _, text in theirs.messages), "eve gets news again")


async def test_opening_forms_is_rate_limited(limited: Settings, store: Store, person: Person) -> None:
    alice, bob = await asyncio.gather(person(), person())
    async with serving(limited, store) as bot:
        opened = [await Errand(alice, where(bot), "timezone").step() for _ in range(10)]
        assert [each["status"] for each in opened].count("executing") == PER_MINUTE
        assert "That's more than 4" in Errand.note(opened[-1])[1]
        assert (await Errand(bob, where(bot), "timezone").step())["status"] == "executing"


@pytest.fixture
def few_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of open forms to slightly more than one user may have."""
    monkeypatch.setattr(adhoc_session, "MAX_SESSIONS", adhoc_session.MAX_SESSIONS_PER_USER + 1)


@pytest.mark.usefixtures("few_errands")
async def test_the_forms_of_one_user_do_not_evict_those_of_others(bot: Bot, person: Person) -> None:
    alice, eve = await asyncio.gather(person(), person())
    mine = Errand(alice, where(bot), "timezone")
    await mine.step()
    theirs = [Errand(eve, where(bot), "timezone") for _ in range(adhoc_session.MAX_SESSIONS_PER_USER + 3)]
    for each in theirs:
        await each.step()
    with pytest.raises(IqError):
        await theirs[0].step("complete", words="Berlin")
    assert "Berlin" in Errand.note(await theirs[-1].step("complete", words="Berlin"))[1]
    assert "Berlin" in Errand.note(await mine.step("complete", words="Berlin"))[1]


async def test_a_suspended_user_gets_no_form(bot: Bot, store: Store, person: Person) -> None:
    alice = await person()
    await alice.say("list")
    await store.people.set_suspended(user_id(alice.jid), suspended=True)
    opened = await Errand(alice, where(bot), "unsubscribe").step()
    assert (opened["status"], Errand.note(opened)[0]) == ("completed", "error")


async def test_presences_of_unknown_users_are_not_tracked(
    others: tuple[Strangers, Bot], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, bot = others
    monkeypatch.setattr(presence_tracker, "MAX_CLIENTS", 3)
    for number in range(300):
        theirs.send(f"<presence from='p{number}@{STRANGERS}/x' to='{bot.connection.address}'/>")
    theirs.say(f"eve@{STRANGERS}", bot.connection.address, "list")
    await until_so(lambda: bool(theirs.messages), "eve is answered")
    for number in range(10):
        theirs.send(f"<presence from='eve@{STRANGERS}/{number}' to='{bot.connection.address}'/>")
    await until_so(lambda: bool(bot._presence.clients), "eve is known")
    await until_so(lambda: not bot._presence.pending, "all presences are handled")
    assert {jid: len(resources) for jid, resources in bot._presence.clients.items()} == {f"eve@{STRANGERS}": 3}


async def test_the_number_of_replies_to_an_echoing_bot_is_limited(bot: Bot, person: Person) -> None:
    parrot, bob = await asyncio.gather(person(), person())
    parrot._xmpp.add_event_handler("message", lambda message: parrot.send(message["body"]))
    parrot.send("What is that?")
    for _ in range(3):
        await bob.say("status")
    await until_so(lambda: len(parrot.received) >= MAX_MISUNDERSTOOD, "the parrot is answered")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are answered")
    await bob.say("status")
    assert len(parrot.received) == MAX_MISUNDERSTOOD
    assert "quiet" in parrot.received[-1].body


class Robot(Guest):
    """A bot in a room that answers everybody who addresses it by nick."""

    def answer(self) -> None:
        """Begin to answer."""
        self._xmpp.add_event_handler("groupchat_message", self._answer)

    def _answer(self, message: Message) -> None:
        if message["body"].startswith(self.nick):
            self.say(f"{message['from'].resource}: What do you mean?")


@pytest_asyncio.fixture
async def robot(bot: Bot, person: Person) -> Robot:
    """Another bot in a room that it has created and to which it has invited the bot under test."""
    robot = Robot(await person(), f"room-{secrets.token_hex(4)}@rooms.localhost", "Robot")
    await robot.open()
    robot.invite(bot.connection.address)
    await robot.hears("Hello!")
    robot.answer()
    return robot


async def test_two_bots_in_a_room_stop_answering_each_other(bot: Bot, robot: Robot, person: Person) -> None:
    robot.say("Coronet: What do you mean?")
    await robot.hears("Robot: I still don't understand")
    alice = await Guest(await person(), robot.room, "alice").enter()
    alice.say("Coronet: list")
    await alice.hears("alice: You have no subscriptions")
    await until_so(lambda: not bot._chat_sessions._sessions, "all messages are answered")
    answers = [text for nick, text in robot.heard if nick == "Coronet" and text.startswith("Robot: ")]
    assert len(answers) == MAX_MISUNDERSTOOD


async def test_a_nick_that_is_a_command_for_another_bot_is_quoted(robot: Robot, person: Person) -> None:
    eve = await Guest(await person(), robot.room, "Robot: help").enter()
    eve.say("Coronet: list")
    await eve.hears("“Robot: help”: You have no subscriptions")
    eve.say("Coronet: list")
    await eve.hears("You have no subscriptions", times=2)
    assert not [text for nick, text in eve.heard if nick == "Robot" and "What do you mean" in text]


@pytest.mark.usefixtures("bot")
async def test_a_quotation_is_not_answered(person: Person) -> None:
    alice = await person()
    alice.send("> You have no subscriptions.\n> Send me a URL.")
    assert "no subscriptions" in await alice.say("> help\nlist")
    assert len(alice.received) == 1
