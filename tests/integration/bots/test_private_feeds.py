"""Logins of private feeds in chat and forms: nowhere in Redis in clear text, and deleted with the subscription."""

import asyncio

import msgspec
import pytest
from pydantic import SecretStr

from bots.bot import Bot
from service.feeds.canonical_urls import channel_id, protected_url
from service.feeds.credentials import parse_credential
from service.net.credential_vault import CredentialVault
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_requests import ProbeRequest, WorkerRequest
from tests.support.bot_in_process import Person
from tests.support.client_software import Errand, where
from tests.support.redis_contents import redis_contents
from tests.support.scripted_worker import scripted_worker
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("login", ["component"])

FEED, LOGIN, SECRET = "https://example.org/feed", "login alice s3cret-passw0rd", b"s3cret-passw0rd"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"credentials_key": SecretStr("k" * 32)})


async def keys_with_the_secret(store: Store) -> list[bytes]:
    return [key for key, value in (await redis_contents(store)).items() if SECRET in value]


async def test_a_login_that_waits_for_its_answer_is_encrypted(
    bot: Bot, person: Person, store: Store, settings: Settings
) -> None:
    alice = await person()
    await alice.say("status")
    me = await store.ring.join("silent", "", 60.0, lambda _: "0" * 40)
    saying = asyncio.create_task(alice.say(f"subscribe {FEED} {LOGIN}"))

    async def request() -> WorkerRequest | None:
        letters, _ = await store.node_inboxes.read(me.id, "0")
        return next((bot_request(letter.payload) for letter in letters if letter.kind == "ask"), None)

    asked = await until(request, "the bot asks the worker")
    assert len(await store.inbound_log.read_unanswered([keys.user_id(alice.jid)])) == 1
    assert await keys_with_the_secret(store) == []
    assert asked is not None
    assert isinstance(asked.body, ProbeRequest)
    assert asked.body.url == protected_url(FEED, keys.user_id(alice.jid))
    opened = CredentialVault(settings).open(asked.body.credential, FEED)
    assert opened == parse_credential(LOGIN)
    assert "none of my workers is free" in await saying
    assert await keys_with_the_secret(store) == []
    assert bot is not None


def bot_request(payload: bytes) -> WorkerRequest:
    return msgspec.msgpack.decode(payload, type=WorkerRequest)


async def test_a_form_with_a_login_subscribes_to_a_channel_of_ones_own(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    url = protected_url(FEED, keys.user_id(alice.jid))
    errand = Errand(alice, where(bot), "subscribe")
    await errand.step()
    async with scripted_worker(store, {url: None}):
        done = await errand.step("complete", url=FEED, credential=LOGIN)
    assert "stored encrypted" in errand.note(done)[1]
    assert [held.channel for held in await store.subscriptions.of_user(alice.jid)] == [channel_id(url)]
    assert "already subscribed" in await alice.say(f"subscribe {FEED}")
    assert await keys_with_the_secret(store) == []
    assert "Unsubscribed" in await alice.say(f"unsubscribe {FEED}")
    assert await store.channels.get(channel_id(url)) is None


async def test_forgetting_a_person_deletes_the_persons_channels(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    url = protected_url(FEED, keys.user_id(alice.jid))
    async with scripted_worker(store, {url: None}):
        await alice.say(f"subscribe {FEED} {LOGIN}")
    await alice.say("forget me")
    assert "deleted everything" in await alice.say("yes")
    assert await store.channels.get(channel_id(url)) is None
    assert bot is not None


async def test_a_login_in_a_command_that_takes_none_is_not_repeated(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    url = protected_url(FEED, keys.user_id(alice.jid))
    async with scripted_worker(store, {url: None}):
        await alice.say(f"subscribe {FEED} {LOGIN}")
    for command in (f"set #1 {LOGIN}", f"subskribe {FEED} {LOGIN}", f"unsubscribe {FEED} x {LOGIN}"):
        assert SECRET.decode() not in await alice.say(command), command
    assert await keys_with_the_secret(store) == []
    assert bot is not None
