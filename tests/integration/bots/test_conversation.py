"""Conversations of users with a bot on a real Prosody and a real Redis; a scripted worker answers its requests."""

import asyncio

import pytest

from service.errors import AddressRefused, BadStatus
from service.feeds.canonical_urls import channel_id, page_url
from service.model import FeedLink
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from service.store.coordination.worker_requests import ProbeReply
from tests.support.bot_in_process import Person
from tests.support.channels import make_channel
from tests.support.scripted_worker import scripted_worker

pytestmark = pytest.mark.usefixtures("bot")

FEED = "https://example.org/feed"


async def test_a_new_user_is_welcomed_once_and_gets_a_reply(person: Person) -> None:
    alice = await person()
    first = await alice.say("help subscribe")
    assert first.startswith("Hello! I'm Coronet")
    assert first.count("\n") == 5, "four lines, an empty one, then the answer"
    assert "Hello" not in await alice.say("help subscribe")


async def test_a_greeting_of_a_new_user_gets_one_welcome(person: Person) -> None:
    assert (await (await person()).say("hi")).count("Hello") == 1


async def test_a_subscription_shows_the_latest_entry_and_is_durable(person: Person, store: Store) -> None:
    alice = await person()
    async with scripted_worker(store, {FEED: None}):
        answer = await alice.say(f"subscribe {FEED}")
    assert "Subscribed to *A feed* (#1)" in answer
    assert "First\nhttps://example.org/feed/1" in answer
    assert [held.channel for held in await store.subscriptions.of_user(alice.jid)] == [channel_id(FEED)]
    assert "#1 A feed" in await alice.say("ls")


async def test_subscribing_to_a_polled_channel_needs_no_worker(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    async with scripted_worker(store, {FEED: None}):
        await alice.say(FEED)
    answer = await bob.say(FEED)
    assert "Subscribed to *A feed*" in answer, "although no worker is there to ask"


async def test_several_feeds_are_offered_by_number(person: Person, store: Store) -> None:
    alice = await person()
    choices = (FeedLink("https://example.org/news", "News"), FeedLink(FEED, "Blog"))
    async with scripted_worker(store, {"https://example.org/": ProbeReply(choices=choices), FEED: None}):
        assert "2. Blog: https://example.org/feed" in await alice.say("example.org")
        assert "Subscribed to *A feed*" in await alice.say("2")


async def test_a_page_without_a_feed_is_watched_after_a_confirmation(person: Person, store: Store) -> None:
    alice = await person()
    async with scripted_worker(store, {"https://example.org/prices": ProbeReply(page=True)}):
        assert "Shall I monitor the page itself" in await alice.say("example.org/prices")
        assert "Subscribed to *A feed* (#1)" in await alice.say("yes")
        assert "Subscribed to *A feed (main table)* (#2)" in await alice.say("subscribe example.org/prices main table")
    channels = await store.channels.get_many([held.channel for held in await store.subscriptions.of_user(alice.jid)])
    assert [(channel.url, channel.kind) for channel in channels if channel] == [
        ("https://example.org/prices", "page"),
        (page_url("https://example.org/prices", "main table"), "page"),
    ]


async def test_subscribing_to_a_moved_channel_subscribes_to_its_successor(person: Person, store: Store) -> None:
    alice = await person()
    old, new = await make_channel(store, "https://old.example/feed"), await make_channel(store, FEED)
    await store.redis.call("HSET", keys.channel(old.id), "moved_to", new.id, "dormant", "1")
    assert f"It has moved to {FEED}. Subscribed to *A feed* (#1)" in await alice.say(old.url)
    assert [held.channel for held in await store.subscriptions.of_user(alice.jid)] == [new.id]


async def test_a_cycle_of_moved_channels_gets_a_reply(person: Person, store: Store) -> None:
    alice = await person()
    one, two = (
        await make_channel(store, "https://one.example/feed"),
        await make_channel(store, "https://two.example/feed"),
    )
    for channel, successor in ((one, two), (two, one)):
        await store.redis.call("HSET", keys.channel(channel.id), "moved_to", successor.id, "dormant", "1")
    assert "none of my workers is free" in await alice.say(one.url)


async def test_errors_get_specific_replies(person: Person, store: Store) -> None:
    alice = await person()
    script = {
        "https://example.org/gone": BadStatus("example.org answered 410.", status=410),
        "http://127.0.0.1/": AddressRefused("127.0.0.1 is loopback."),
    }
    async with scripted_worker(store, script):
        assert "gone for good (410)" in await alice.say("example.org/gone")
        assert "public" in await alice.say("http://127.0.0.1/")
    assert "none of my workers" in await alice.say("example.org/other")


async def test_a_blocked_host_is_refused_and_explained(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    async with scripted_worker(store, {FEED: None}):
        await alice.say(FEED)
        await store.blocked_hosts.add("example.org", HostBlock("ada", 1.0))
        refused = f"I can't read “{FEED}”: example.org is blocked here by an admin."
        assert refused in await bob.say(FEED), "although it is polled"
        assert "example.org is blocked here by an admin." in await bob.say("https://www.example.org/other")
        assert "example.org is blocked here by an admin." in await alice.say("why #1")
        await store.blocked_hosts.remove("example.org")
        assert "Subscribed to *A feed*" in await bob.say(FEED)


async def test_subscription_numbers_of_other_users_are_not_found(person: Person, store: Store) -> None:
    alice, eve = await asyncio.gather(person(), person())
    async with scripted_worker(store, {FEED: None}):
        await alice.say(FEED)
    await eve.say("status")
    assert await eve.say("unsubscribe #1") == await eve.say("unsubscribe #77") == await eve.say(f"unsubscribe {FEED}")
    assert len(await store.subscriptions.of_user(alice.jid)) == 1
