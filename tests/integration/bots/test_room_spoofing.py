"""Addresses that pose as rooms, and forged senders and inviters, on a real Prosody."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from bots.bot import Bot
from bots.rooms import invitation_policy
from service.embedded.private_prosody import PrivateProsody
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.people.bot_rooms import Room
from tests.support.bot_in_process import JumpingClock, Person, serving
from tests.support.channels import make_channel
from tests.support.chat import ChatClient, online
from tests.support.other_xmpp_server import GROUP_CHAT, OtherServer, presence
from tests.support.prosody import ELSEWHERE, STRANGERS
from tests.support.room_guest import Guest
from tests.support.waiting import until, until_so

SUBSCRIBE = "subscribe https://example.org/feed"
INVITED_BY = "<x xmlns='http://jabber.org/protocol/muc#user'><invite from='{}'/></x>"
INVITED_TO = "<x xmlns='jabber:x:conference' jid='{}'/>"


@pytest_asyncio.fixture
async def elsewhere(settings: Settings, prosody: PrivateProsody) -> AsyncIterator[OtherServer]:
    """Another XMPP server, which the test controls."""
    async with OtherServer(ELSEWHERE, prosody.component_port, settings.xmpp_jid) as server:
        yield server


@pytest.fixture
def owner(person: Person) -> Callable[[], Awaitable[Guest]]:
    """Make users who have created a room that shows JIDs."""

    async def make() -> Guest:
        room = f"room-{secrets.token_hex(4)}@rooms.localhost"
        return await Guest(await person(), room, "alice").open(shows_addresses=True)

    return make


def only_for(settings: Settings, *jids: str) -> Settings:
    """Return settings of a bot that only these users may use."""
    return settings.model_copy(update={"who_may_use": "listed", "allowed_users": jids})


async def wait_until_handled(client: ChatClient) -> None:
    """Return when the bot has handled all earlier stanzas and their consequences."""
    for _ in range(5):
        await client.say("status")


async def suspend(store: Store, client: ChatClient) -> None:
    """Suspend a user whom the bot knows."""
    await client.say("status")
    assert await store.people.set_suspended(user_id(client.jid), suspended=True)


@pytest.mark.parametrize("who_may_use", ["open", "listed"])
async def test_a_user_account_cannot_pose_as_a_room(
    settings: Settings, store: Store, prosody: PrivateProsody, person: Person, who_may_use: str
) -> None:
    """A second client of the account poses as the owner of the room."""
    alice = await person()
    mallory = await prosody.register(f"mallory-{secrets.token_hex(4)}", "pw")
    await make_channel(store)
    mine = settings if who_may_use == "open" else only_for(settings, alice.jid)
    login = ("pw", "127.0.0.1", prosody.c2s_port, mine.xmpp_jid)
    async with (
        serving(mine, store) as bot,
        online(mallory, *login, resource="Coronet") as room,
        online(mallory, *login, resource="owner") as owner_client,
    ):
        room.send_raw(f"<message to='{mine.xmpp_jid}'>{INVITED_BY.format(alice.jid)}</message>")
        to = bot.connection.session_jid
        for _ in range(3):
            await wait_until_handled(alice)
            room.send_raw(presence(f"{mallory}/Coronet", to, "none", "110"))
            owner_client.send_raw(presence(f"{mallory}/owner", to, "owner"))
            owner_client.send_raw(f"<message to='{to}' type='groupchat'><body>Coronet: {SUBSCRIBE}</body></message>")
        await wait_until_handled(alice)
    assert not await store.subscriptions.of_user(mallory)
    assert not await store.rooms.get(mine.xmpp_jid)


@pytest.mark.usefixtures("bot")
async def test_a_forged_inviter_gets_no_message(elsewhere: OtherServer, person: Person) -> None:
    victim, room = await person(), f"buy-pills@{ELSEWHERE}"
    elsewhere.information[room] = GROUP_CHAT
    elsewhere.invite(room, victim.jid)
    elsewhere.refuse(await elsewhere.is_entered(room), "forbidden")
    await wait_until_handled(victim)
    assert not [message for message in victim.received if "buy-pills" in message.body]


async def test_forged_invitations_do_not_use_up_the_quota_of_the_named_inviter(
    bot: Bot, elsewhere: OtherServer, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice = await owner()
    for number in range(150):
        elsewhere.invite(f"{number}@{ELSEWHERE}", alice.client.jid)
    await alice.client.say("status")
    alice.invite(bot.connection.address, direct=True)
    await alice.hears("Hello!")


async def test_one_server_cannot_use_up_the_limit_of_rooms(
    bot: Bot, elsewhere: OtherServer, owner: Callable[[], Awaitable[Guest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitation_policy, "MAX_ROOMS", 4)
    monkeypatch.setattr(invitation_policy, "MAX_ROOMS_PER_SITE", 2)
    rooms = [f"{number}@{ELSEWHERE}" for number in range(4)]
    elsewhere.information.update(dict.fromkeys(rooms, GROUP_CHAT))
    alice = await owner()
    for number, room in enumerate(rooms):
        elsewhere.invite(room, f"{number}@{ELSEWHERE}")
    await elsewhere.is_entered(rooms[1])
    await wait_until_handled(alice.client)
    alice.invite(bot.connection.address, direct=True)
    await alice.hears("Hello!")
    assert not [one for one in elsewhere.received if one.get("to", "").startswith(f"{rooms[2]}/Coronet")]


@pytest.mark.usefixtures("bot")
async def test_messages_from_a_room_are_ignored_before_it_admits_the_bot(
    store: Store, elsewhere: OtherServer, person: Person
) -> None:
    alice, room = await person(), f"room@{ELSEWHERE}"
    elsewhere.information[room] = GROUP_CHAT
    await make_channel(store)
    elsewhere.invite(room, alice.jid)
    await elsewhere.is_entered(room)
    elsewhere.show(f"{room}/alice", "owner")
    elsewhere.say(f"{room}/eve", SUBSCRIBE)
    elsewhere.say(f"{room}/alice", f"Coronet: {SUBSCRIBE}", "groupchat")
    assert await elsewhere.is_refused(f"{room}/eve", "pause")
    await wait_until_handled(alice)
    elsewhere.show(f"{room}/Coronet", "none", "110")
    await elsewhere.hears(room, "Hello!")
    assert not await store.subscriptions.of_user(room)
    elsewhere.say(f"{room}/alice", f"Coronet: {SUBSCRIBE}", "groupchat")
    await elsewhere.hears(room, "alice: Subscribed")


@pytest.mark.usefixtures("bot")
async def test_messages_from_a_room_are_ignored_while_the_bot_leaves(elsewhere: OtherServer, person: Person) -> None:
    alice, room = await person(), f"room@{ELSEWHERE}"
    elsewhere.information[room] = GROUP_CHAT
    elsewhere.invite(room, alice.jid)
    await elsewhere.is_entered(room)
    elsewhere.show(f"{room}/alice", "owner")
    elsewhere.show(f"{room}/Coronet", "none", "110")
    await elsewhere.hears(room, "Hello!")
    del elsewhere.information[room]
    elsewhere.say(f"{room}/alice", "Coronet: leave", "groupchat")
    await elsewhere.gets(lambda one: one.get("type") == "unavailable", "the bot leaves")
    await wait_until_handled(alice)
    assert await elsewhere.is_refused(f"{room}/eve", "pause")


async def test_a_presence_under_another_nick_does_not_admit_the_bot(
    bot: Bot, store: Store, elsewhere: OtherServer, person: Person
) -> None:
    alice, room = await person(), f"room@{ELSEWHERE}"
    elsewhere.information[room] = GROUP_CHAT
    elsewhere.invite(room, alice.jid)
    await elsewhere.is_entered(room)
    elsewhere.show(f"{room}/eve", "owner", "110")
    elsewhere.show(f"{room}/Coronet", "owner")
    await wait_until_handled(alice)
    assert not await store.rooms.get(bot.connection.address)


@pytest.mark.usefixtures("bot")
async def test_an_error_from_an_occupant_does_not_end_the_membership(elsewhere: OtherServer, person: Person) -> None:
    alice, room = await person(), f"room@{ELSEWHERE}"
    elsewhere.information[room] = GROUP_CHAT
    elsewhere.invite(room, alice.jid)
    await elsewhere.is_entered(room)
    elsewhere.show(f"{room}/Coronet", "none", "110")
    await elsewhere.hears(room, "Hello!")
    error = "<error type='cancel'><not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    elsewhere.send(f"<message from='{room}/eve' to='{elsewhere.bot}' type='error' id='1'>{error}</message>")
    await wait_until_handled(alice)
    elsewhere.say(f"{room}/bob", "Coronet: list", "groupchat")
    await elsewhere.hears(room, "bob: You have no subscriptions")


async def test_an_invitation_to_a_user_account_is_declined(bot: Bot, store: Store, person: Person) -> None:
    alice, bob = await person(), await person()
    alice.send_raw(f"<message to='{bot.connection.address}'>{INVITED_TO.format(bob.jid)}</message>")
    await alice.wait_for(lambda message: f"I found no group chat at {bob.jid}" in message.body)
    await bob.say("status")
    assert not await store.rooms.get(bot.connection.address)
    assert not bot.connection.rooms


@pytest.mark.parametrize("service", [True, False])
async def test_only_a_service_of_the_inviters_server_vouches_for_the_inviter(
    settings: Settings, store: Store, prosody: PrivateProsody, person: Person, *, service: bool
) -> None:
    """Neither a subdomain that has accounts nor another domain vouches."""
    alice = await person()
    mine = only_for(settings, alice.jid)
    async with (
        serving(mine, store),
        OtherServer(STRANGERS, prosody.component_port, mine.xmpp_jid) as below,
        OtherServer(ELSEWHERE, prosody.component_port, mine.xmpp_jid) as elsewhere,
    ):
        below.information[f"room@{STRANGERS}"] = GROUP_CHAT
        elsewhere.information.update({ELSEWHERE: GROUP_CHAT, f"room@{ELSEWHERE}": GROUP_CHAT})
        accounts = GROUP_CHAT.replace("category='conference' type='text'", "category='server' type='im'")
        below.information[STRANGERS] = GROUP_CHAT if service else accounts
        for server in (below, elsewhere):
            server.invite(f"room@{server.domain}", alice.jid)
        await elsewhere.hears_decline()
        if service:
            await below.is_entered(f"room@{STRANGERS}")
        else:
            await below.hears_decline()
        await wait_until_handled(alice)
    entered = [one for one in (*below.received, *elsewhere.received) if one.tag.endswith("presence")]
    assert {one.get("to") for one in entered} == ({f"room@{STRANGERS}/Coronet"} if service else set())
    assert not [message for message in alice.received if "not open to everyone" in message.body]


async def test_an_occupant_cannot_invite_in_the_name_of_the_room(
    settings: Settings, store: Store, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice, mallory = await owner(), await owner()
    async with serving(only_for(settings, alice.client.jid), store) as bot:
        alice.invite(bot.connection.address, direct=True)
        await alice.hears("Hello!")
        await Guest(mallory.client, alice.room, "eve").enter()
        to = f"{alice.room}/Coronet"
        mallory.client.send_raw(f"<message to='{to}' type='chat'>{INVITED_TO.format(mallory.room)}</message>")
        await wait_until_handled(alice.client)
        assert list(await store.rooms.get(bot.connection.address)) == [alice.room]


async def test_a_stored_room_that_is_a_user_account_is_deleted_at_start(
    settings: Settings, store: Store, person: Person
) -> None:
    mallory, channel = await person(), await make_channel(store)
    await store.rooms.put(settings.xmpp_jid, mallory.jid, Room("Coronet"))
    await store.subscriptions.subscribe(mallory.jid, channel.id)
    async with serving(settings, store) as bot:

        async def is_room_deleted() -> bool:
            return not await store.rooms.get(settings.xmpp_jid)

        await until(is_room_deleted, "the room is deleted")
        await until_so(lambda: not bot.connection.rooms, "the address counts as a user's again")
    assert not await store.subscriptions.of_user(mallory.jid)


async def test_a_room_on_an_unavailable_server_is_joined_later(
    settings: Settings, store: Store, prosody: PrivateProsody, person: Person
) -> None:
    room, clock, alice = f"room@{ELSEWHERE}", JumpingClock(), await person()
    await store.rooms.put(settings.xmpp_jid, room, Room("Coronet"))
    async with serving(settings, store, clock):
        await wait_until_handled(alice)
        async with OtherServer(ELSEWHERE, prosody.component_port, settings.xmpp_jid) as server:
            server.information[room] = GROUP_CHAT
            clock.ahead_s = 20.0
            await server.is_entered(room)
    assert list(await store.rooms.get(settings.xmpp_jid)) == [room]


async def test_an_invitation_by_a_suspended_user_is_ignored(
    bot: Bot, store: Store, owner: Callable[[], Awaitable[Guest]]
) -> None:
    mallory, alice = await asyncio.gather(owner(), owner())
    await suspend(store, mallory.client)
    mallory.invite(bot.connection.address, direct=True)
    await wait_until_handled(alice.client)
    alice.invite(bot.connection.address, direct=True)
    await alice.hears("Hello!")
    await wait_until_handled(alice.client)
    assert list(await store.rooms.get(bot.connection.address)) == [alice.room]
    assert len(mallory.client.received) == 1


async def test_a_room_of_a_suspended_owner_is_left(
    bot: Bot, store: Store, person: Person, owner: Callable[[], Awaitable[Guest]]
) -> None:
    mallory, friend, alice = await owner(), await person(), await owner()
    await suspend(store, mallory.client)
    guest = await Guest(friend, mallory.room, "friend").enter()
    guest.invite(bot.connection.address, direct=True)
    await wait_until_handled(friend)
    alice.invite(bot.connection.address, direct=True)
    await alice.hears("Hello!")
    await until_so(lambda: "Coronet" not in guest.roster(), "the bot has left")
    assert list(await store.rooms.get(bot.connection.address)) == [alice.room]
    assert not guest.heard


async def test_a_suspended_user_is_not_answered_in_a_room(
    bot: Bot, store: Store, person: Person, owner: Callable[[], Awaitable[Guest]]
) -> None:
    alice, mallory = await owner(), await person()
    await suspend(store, mallory)
    alice.invite(bot.connection.address, direct=True)
    await alice.hears("Hello!")
    guest = await Guest(mallory, alice.room, "mallory").enter()
    guest.say("Coronet: list")
    mallory.send_raw(f"<message to='{alice.room}/Coronet' type='chat'><body>list</body></message>")
    await guest.hears("Coronet: list")
    alice.say("Coronet: list")
    await alice.hears("alice: You have no subscriptions")
    await wait_until_handled(alice.client)
    assert not [text for _, text in alice.heard if "mallory:" in text]
    assert len(mallory.received) == 1
