"""Whichever process receives an invitation, the one that serves the room joins it."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bots.bot import Bot
from bots.cluster.partitions import ALL_PARTITIONS, AssignedUsers, partition_of
from service.clock import SystemClock
from service.embedded.private_prosody import PrivateProsody
from service.feeds.entries.version_parts import VersionParts
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, serving
from tests.support.channels import make_channel, publish
from tests.support.chat import online
from tests.support.room_guest import Guest
from tests.support.waiting import until, until_so


@pytest.fixture
def login() -> str:
    """Log in as a client, because several processes can share an account."""
    return "client"


Pair = tuple[Bot, Bot, Guest]


@pytest_asyncio.fixture
async def pair(settings: Settings, store: Store, person: Person) -> AsyncIterator[Pair]:
    """Two bots of one account, the second of which serves only a room that a user has created."""
    guest = await Guest(await person(), f"room-{secrets.token_hex(4)}@rooms.localhost", "alice").open()
    room_partition = frozenset([partition_of(user_id(guest.room))])
    async with (
        serving(settings, store, assigned_users=_assigned(settings, store, ALL_PARTITIONS - room_partition)) as one,
        serving(settings, store, assigned_users=_assigned(settings, store, room_partition)) as other,
    ):
        yield one, other, guest


def _assigned(settings: Settings, store: Store, partitions: frozenset[int], *addresses: str) -> AssignedUsers:
    assigned_users = AssignedUsers(store.home_addresses, SystemClock(), settings.xmpp_jid, addresses)
    assigned_users.assign(partitions)
    return assigned_users


@pytest.mark.parametrize("direct", [True, False])
async def test_an_invitation_received_by_another_process_is_accepted(pair: Pair, *, direct: bool) -> None:
    one, other, alice = pair
    alice.invite(one.connection.session_jid, direct=direct)
    await alice.hears("Hello! I'm Coronet")
    assert other.connection.rooms == {alice.room}
    assert not one.connection.rooms
    alice.say("Coronet: list")
    await alice.hears("alice: You have no subscriptions")


async def test_an_invitation_received_by_both_processes_is_accepted_once(pair: Pair, store: Store) -> None:
    one, _, alice = pair
    alice.invite(one.connection.address, direct=True)
    await alice.hears("Hello! I'm Coronet")
    alice.say("Coronet: leave")
    await until_so(lambda: alice.roster() == ["alice"], "the bot has left")
    assert await alice.client.say("status")
    assert alice.roster() == ["alice"]

    async def is_log_empty() -> bool:
        return not await store.inbound_log.unanswered_users()

    await until(is_log_empty, "no message is unanswered")


async def test_an_inviter_without_access_is_declined_once(settings: Settings, store: Store, person: Person) -> None:
    guest = await Guest(await person(), f"room-{secrets.token_hex(4)}@rooms.localhost", "eve").open()
    room_partition = frozenset([partition_of(user_id(guest.room))])
    closed = settings.model_copy(update={"who_may_use": "listed", "allowed_users": ("nobody@localhost",)})
    async with (
        serving(closed, store, assigned_users=_assigned(settings, store, ALL_PARTITIONS - room_partition)),
        serving(closed, store, assigned_users=_assigned(settings, store, room_partition)),
    ):
        guest.invite(settings.xmpp_jid, direct=True)
        await guest.client.wait_for(lambda message: bool(message.body))
        await guest.client.say("status")
        assert len(guest.client.received) == 2
        assert guest.roster() == ["eve"]


async def test_a_room_is_served_by_the_address_that_joined_it(clean_redis: str, store: Store, tmp_path: Path) -> None:
    async with PrivateProsody(tmp_path / "prosody", shards=1) as server:
        addresses = (server.bot_jid, *server.shards)
        first_settings = Settings(
            redis_url=clean_redis,
            xmpp_jid=server.bot_jid,
            xmpp_shards=server.shards,
            xmpp_password=SecretStr(server.component_secret),
            xmpp_host="127.0.0.1",
            xmpp_port=server.component_port,
        )
        second_settings = first_settings.model_copy(update={"xmpp_jid": server.shards[0]})
        jid = await server.register("alice", "pw")
        async with (
            serving(first_settings, store, assigned_users=_assigned(first_settings, store, ALL_PARTITIONS, *addresses)),
            serving(
                second_settings, store, assigned_users=_assigned(second_settings, store, ALL_PARTITIONS, *addresses)
            ),
            online(jid, "pw", "127.0.0.1", server.c2s_port, server.bot_jid) as client,
        ):
            alice = await Guest(client, "room@rooms.localhost", "alice").open()
            alice.invite(server.shards[0], direct=True)
            await alice.hears("Hello! I'm Coronet")
            channel = await make_channel(store)
            alice.say("Coronet: subscribe https://example.org/feed")
            await alice.hears("Subscribed")
            delta = await publish(store, channel, "news")
            await store.outbox.enqueue([user_id(alice.room)], channel.id, delta.version, 2_000.0, VersionParts())
            await alice.hears("Entry news")
