"""Group chats on a real Prosody: invitations, commands, deliveries, and leaving."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from bots.bot import Bot
from bots.xmpp.events import MessageReceived
from service.feeds.entries.version_parts import VersionParts
from service.feeds.parsing.html_text import remove_invalid_chars
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.bot_messages import BotNotice
from service.store.delivery.inbound_log import InboundMessage
from tests.support.bot_in_process import Person, serving
from tests.support.channels import make_channel, publish
from tests.support.naughty_strings import STRINGS
from tests.support.room_guest import Guest
from tests.support.waiting import until, until_so


async def answered(guest: Guest) -> bool:
    """Send a command, and return whether there was an answer."""
    guest.say("Coronet: list")
    with contextlib.suppress(AssertionError):
        await until_so(lambda: any("#1 A feed" in text for _, text in guest.heard), "an answer", within_s=1.0)
        return True
    return False


@pytest.fixture
def owner(person: Person) -> Callable[[], Awaitable[Guest]]:
    """Make users who have created a room."""

    async def make() -> Guest:
        return await Guest(await person(), f"room-{secrets.token_hex(4)}@rooms.localhost", "alice").open()

    return make


async def test_an_archived_private_message_is_not_executed_for_the_room(
    bot: Bot, store: Store, owner: Callable[[], Awaitable[Guest]]
) -> None:
    """The archive of an account contains it, but not whether its sender is a manager of the room."""
    alice = await owner()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    await make_channel(store)
    alice.say("Coronet: subscribe https://example.org/feed")
    await alice.hears("Subscribed")
    heard = list(alice.heard)
    private_message = MessageReceived(
        alice.room, f"{alice.room}/eve", "1", "unsubscribe #1", "", wants_receipt=False, sent_s=1.0
    )
    sentence = InboundMessage(alice.room, "a 1", msgspec.msgpack.encode(private_message), bot.connection.address)
    assert await store.inbound_log.add([sentence]) == [True]
    await store.bot_messages.notify([BotNotice(user_id(alice.room))])

    async def is_handled() -> bool:
        return not await store.inbound_log.read_unanswered([user_id(alice.room)])

    await until(is_handled, "the message is removed from the log")
    assert len(await store.subscriptions.of_user(alice.room)) == 1
    assert alice.heard == heard


@pytest.mark.parametrize("direct", [False, True])
async def test_an_invited_bot_joins_answers_and_delivers_entries(
    bot: Bot, store: Store, owner: Callable[[], Awaitable[Guest]], *, direct: bool
) -> None:
    alice = await owner()
    alice.invite(bot.connection.address, direct=direct)
    assert "Coronet: help" in await alice.hears("Hello! I'm Coronet")
    alice.say("Coronet: help")
    assert "`Coronet: leave`" in await alice.hears("Here's what I can do")
    channel = await make_channel(store)
    alice.say("subscribe https://example.org/feed")
    alice.say("Coronet: subscribe https://example.org/feed")
    await alice.hears("alice: Subscribed to *A feed* (#1)")
    delta = await publish(store, channel, "news")
    await store.outbox.enqueue([user_id(alice.room)], channel.id, delta.version, 2_000.0, VersionParts())
    await alice.hears("Entry news")

    async def arrived() -> bool:
        return not await store.outbox.count_waiting()

    await until(arrived, "the echo from the room is the receipt")
    assert [nick for nick, _ in alice.heard].count("Coronet") == 4


async def test_only_owners_and_admins_change_subscriptions_of_a_room(
    bot: Bot, store: Store, person: Person, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice = await owner()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    await make_channel(store)
    client = await person()
    eve = await Guest(client, alice.room, "eve").enter()
    eve.say("Coronet: subscribe https://example.org/feed")
    await eve.hears("eve: Only owners and admins")
    eve.say("Coronet, list")
    await eve.hears("eve: You have no subscriptions")
    eve.say("Coronet: yes")
    await eve.hears("eve: Only owners and admins", times=2)
    eve.say("Coronet: leave")
    await eve.hears("eve: Only owners and admins", times=3)
    client.send_raw(
        f"<message to='{alice.room}/Coronet' type='chat' id='pm'><body>subscribe https://example.org/feed</body></message>"
    )
    await client.wait_for(lambda message: "Only owners and admins" in message.body)
    assert not await store.subscriptions.of_user(alice.room)


async def test_the_bot_rejoins_after_a_restart_and_leaves_on_command(
    settings: Settings, store: Store, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice = await owner()
    channel = await make_channel(store)
    async with serving(settings, store):
        alice.invite(settings.xmpp_jid)
        await alice.hears("Hello!")
        await store.subscriptions.subscribe(alice.room, channel.id)
    async with serving(settings, store):
        await until(lambda: answered(alice), "the bot is back")
        assert len([text for _, text in alice.heard if "Hello" in text]) == 1
        alice.say("Coronet: leave")
        await until_so(lambda: "Coronet" not in alice.roster(), "the bot has left")

        async def is_room_deleted() -> bool:
            return not await store.rooms.get(settings.xmpp_jid)

        await until(is_room_deleted, "the room is deleted")
        assert not await store.subscriptions.of_user(alice.room)


async def test_a_kick_ends_the_membership(bot: Bot, store: Store, owner: Callable[[], Awaitable[Guest]]) -> None:
    alice = await owner()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    await alice._xmpp.plugin["xep_0045"].set_role(alice._at, "Coronet", "none")

    async def is_room_deleted() -> bool:
        return not await store.rooms.get(bot.connection.address)

    await until(is_room_deleted, "the room is deleted")
    await until_so(lambda: alice.room not in bot.connection.rooms, "the address counts as a user's again")


@pytest.mark.parametrize("login", ["client"])
async def test_an_account_bookmarks_its_rooms(bot: Bot, owner: Callable[[], Awaitable[Guest]]) -> None:
    alice = await owner()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    request = "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='urn:xmpp:bookmarks:1'/></pubsub>"

    async def bookmarks() -> list[str]:
        answer = await bot.connection.request(bot.connection.address, "get", request)
        return [item.get("id", "") for item in answer.iter("{http://jabber.org/protocol/pubsub}item")]

    async def kept() -> bool:
        return await bookmarks() == [alice.room]

    await until(kept, "the room is bookmarked")
    alice.say("Coronet: leave")

    async def is_bookmark_removed() -> bool:
        return await bookmarks() == []

    await until(is_bookmark_removed, "the bookmark is removed")


async def test_rooms_and_users_have_separate_subscriptions(
    bot: Bot, store: Store, person: Person, owner: Callable[[], Awaitable[Guest]]
) -> None:
    one, two = await asyncio.gather(owner(), owner())
    for room in (one, two):
        room.invite(bot.connection.address)
        await room.hears("Hello!")
    await make_channel(store)
    one.say("Coronet: subscribe https://example.org/feed")
    await one.hears("Subscribed")
    two.say("Coronet: list")
    await two.hears("You have no subscriptions")
    bob = await person()
    assert "You have no subscriptions" in await bob.say("list")


@pytest.mark.parametrize("login", ["component"])
async def test_occupants_with_hostile_nicks_are_answered(bot: Bot, owner: Callable[[], Awaitable[Guest]]) -> None:
    """The room refuses nicks that are invalid; the occupant keeps the previous one."""
    alice = await owner()
    alice.invite(bot.connection.address)
    await alice.hears("Hello!")
    names = list(filter(None, (remove_invalid_chars(name)[:200] for name in STRINGS)))[::8]
    for first in range(0, len(names), 15):
        for name in names[first : first + 15]:
            alice.say_as(name, "Coronet: list")
        await alice.hears("You have no subscriptions", times=min(first + 15, len(names)))
    assert len({text.partition(": You have")[0] for _, text in alice.heard}) > len(names) / 2
    assert bot.connection.connected.is_set()


@pytest.mark.parametrize("login", ["component"])
async def test_a_guest_above_the_limit_is_notified_once_and_others_are_served(
    settings: Settings, store: Store, person: Person, owner: Callable[[], Awaitable[Guest]]
) -> None:
    """Changing the nick does not help, and all guests together are limited as well."""
    alice, eve = await owner(), await person()
    async with serving(settings.model_copy(update={"max_commands_per_minute": 4}), store):
        alice.invite(settings.xmpp_jid)
        await alice.hears("Hello!")
        guest = await Guest(eve, alice.room, "eve").enter()
        bob = await Guest(await person(), alice.room, "bob").enter()
        for number in range(30):
            guest.say_as(f"eve{number}", "Coronet: list")
        await alice.hears(": That's more than 4 commands")
        bob.say("Coronet: list")
        alice.say("Coronet: list")
        await alice.hears("bob: You have no subscriptions")
        await alice.hears("alice: You have no subscriptions")
    assert len([text for _, text in alice.heard if "That's more than" in text]) == 1
    assert len([text for _, text in alice.heard if "You have no subscriptions" in text]) == 6


@pytest.mark.parametrize("login", ["component"])
async def test_a_reply_after_a_restart_refers_to_the_channel_of_the_message(
    settings: Settings, store: Store, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice, channel = await owner(), await make_channel(store)
    async with serving(settings, store):
        alice.invite(settings.xmpp_jid)
        await alice.hears("Hello!")
        await store.subscriptions.subscribe(alice.room, channel.id)
        delta = await publish(store, channel, "news")
        await store.outbox.enqueue([user_id(alice.room)], channel.id, delta.version, 2_000.0, VersionParts())
        told = await alice.hears("Entry news")

        async def kept() -> bool:
            return bool((await store.rooms.message_ids([alice.room]))[alice.room])

        await until(kept, "the room's id of the message is stored")
    async with serving(settings, store):
        await until(lambda: answered(alice), "the bot is back")
        alice.reply(told, "pause")
        await alice.hears("*A feed* is paused")


@pytest.mark.parametrize("login", ["component"])
@pytest.mark.parametrize("direct", [False, True])
async def test_an_inviter_without_access_gets_the_reason(
    settings: Settings, store: Store, owner: Callable[[], Awaitable[Guest]], *, direct: bool
) -> None:
    mallory = await owner()
    with capture_logs() as logs:
        async with serving(settings.model_copy(update={"who_may_use": "listed"}), store):
            mallory.invite(settings.xmpp_jid, direct=direct)
            # Prosody hides who sends a mediated invitation, so the bot cannot verify the inviter.
            sentence = "Only people whom the operator has listed" if direct else "Please invite me directly"
            await mallory.client.wait_for(lambda message: sentence in message.body)
    declined = [each for each in logs if each["event"] == "room invitation declined"]
    reason = "inviter may not use the bot" if direct else "inviter cannot be verified"
    assert [(each["room"], each["reason"]) for each in declined] == [(mallory.room, reason)]
    assert not await store.rooms.get(settings.xmpp_jid)
