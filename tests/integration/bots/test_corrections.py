"""Corrections of earlier messages by edits, and entries of two channels that are sent once."""

import pytest

from service.feeds.entries.duplicate_articles import hash_version
from service.model import Change, Channel, Entry
from service.store import Store
from service.store.client import keys
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person
from tests.support.channels import change, make_channel
from tests.support.chat import ChatClient
from tests.support.waiting import until

pytestmark = [pytest.mark.usefixtures("bot"), pytest.mark.parametrize("login", ["component"])]


def added(key: str) -> Change:
    return Change("addition", Entry(key, f"The title of article {key}", f"https://example.org/articles/{key}"))


def edited(key: str, title: str) -> Change:
    return Change("replacement", Entry(key, title, f"https://example.org/articles/{key}"))


async def follows(store: Store, person: ChatClient, *names: str) -> list[Channel]:
    """Subscribe a user to channels; return them."""
    channels = [await make_channel(store, f"https://example.org/{name}") for name in names]
    for channel in channels:
        await store.subscriptions.subscribe(person.jid, channel.id)
    await person.say("status")
    return channels


async def publish(store: Store, person: ChatClient, channel: Channel, *changes: Change) -> None:
    """Publish a version, and queue it for one user."""
    present = await store.channels.get(channel.id)
    assert present is not None
    delta = await change(store, channel, *changes, base=present.version)
    await store.outbox.enqueue([user_id(person.jid)], channel.id, delta.version, 2_000.0, hash_version(delta))


async def test_two_edits_correct_the_same_original_message(person: Person, store: Store) -> None:
    alice = await person()
    (channel,) = await follows(store, alice, "feed")
    await publish(store, alice, channel, added("a"), added("b"))
    original = await alice.wait_for(lambda message: "article a" in message.body)
    await publish(store, alice, channel, added("c"))
    await alice.wait_for(lambda message: "article c" in message.body)
    await publish(store, alice, channel, edited("a", "Better words"))
    first = await alice.wait_for(lambda message: "Better words" in message.body)
    await publish(store, alice, channel, edited("b", "The best words"))
    second = await alice.wait_for(lambda message: "The best words" in message.body)
    assert [first.replaces, second.replaces] == [original.id, original.id]
    assert first.body == (
        "*A feed*\nEdited: Better words\nhttps://example.org/articles/a\n\n"
        "The title of article b\nhttps://example.org/articles/b"
    )
    assert "Edited: Better words" in second.body, "a correction of a correction keeps the first"
    assert len({message.id for message in (original, first, second)}) == 3


async def test_new_entries_beside_an_edit_are_a_separate_message(person: Person, store: Store) -> None:
    alice = await person()
    (channel,) = await follows(store, alice, "feed")
    await publish(store, alice, channel, added("a"))
    original = await alice.wait_for(lambda message: "article a" in message.body)
    await publish(store, alice, channel, edited("a", "Better words"), added("b"))
    correction = await alice.wait_for(lambda message: "Better words" in message.body)
    news = await alice.wait_for(lambda message: "article b" in message.body)
    assert (correction.replaces, news.replaces) == (original.id, "")
    assert "article b" not in correction.body


async def test_an_edit_of_an_entry_never_sent_is_a_new_message(person: Person, store: Store) -> None:
    alice = await person()
    (channel,) = await follows(store, alice, "feed")
    await publish(store, alice, channel, edited("first", "Better words"))
    message = await alice.wait_for(lambda message: "Better words" in message.body)
    assert message.replaces == ""
    assert message.body == "*A feed*\nEdited: Better words\nhttps://example.org/articles/first"


async def test_a_message_with_entries_no_longer_in_the_log_is_not_corrected(person: Person, store: Store) -> None:
    alice = await person()
    (channel,) = await follows(store, alice, "feed")
    await publish(store, alice, channel, added("a"), added("b"))
    await alice.wait_for(lambda message: "article a" in message.body)
    await store.redis.call("HDEL", keys.channel(channel.id), "1", "2", "3")
    await publish(store, alice, channel, edited("a", "Better words"))
    message = await alice.wait_for(lambda message: "Better words" in message.body)
    assert message.replaces == "", "article b would disappear from it"


async def test_an_entry_of_two_channels_is_sent_once(person: Person, store: Store) -> None:
    alice = await person()
    one, two = await follows(store, alice, "one", "two")
    await publish(store, alice, one, added("a"))
    await alice.wait_for(lambda message: "article a" in message.body)
    await publish(store, alice, two, added("a"))
    await publish(store, alice, two, added("b"))
    await alice.wait_for(lambda message: "article b" in message.body)

    async def nothing_waits() -> bool:
        return not await store.outbox.count_waiting()

    await until(nothing_waits, "everything is finished")
    assert sum("article a" in message.body for message in alice.notifications) == 1
