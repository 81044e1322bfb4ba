"""Attached files and images of entries in notifications, and the length and the source of their texts."""

import asyncio

import msgspec
import pytest

from service.feeds.entries.duplicate_articles import hash_version
from service.model import Change, Channel, Enclosure, Entry
from service.store import Store
from service.store.client import keys
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person
from tests.support.channels import change, make_channel
from tests.support.chat import ChatClient
from tests.support.waiting import until_so

PICTURE = "https://example.org/a.png?size=1&x=<2>"
EPISODE = Entry(
    "episode", "Episode 1", "https://example.org/1", "word " * 300, tags=("open source",), image=PICTURE,
    enclosures=(Enclosure("https://example.org/1.mp3", "audio/mpeg", 34_215_000, 2_530),),
)  # fmt: skip


async def publish(store: Store, people: list[ChatClient], channel: Channel, *changes: Change, base: int) -> None:
    delta = await change(store, channel, *changes, base=base)
    ids = [user_id(person.jid) for person in people]
    await store.outbox.enqueue(ids, channel.id, delta.version, 2_000.0, hash_version(delta))


def added(key: str) -> Change:
    entry = msgspec.structs.replace(EPISODE, key=key, title=f"Episode {key}", link=f"https://example.org/{key}")
    return Change("addition", entry)


async def subscribed(store: Store, *people: ChatClient) -> Channel:
    channel = await make_channel(store)
    for person in people:
        await store.subscriptions.subscribe(person.jid, channel.id)
    return channel


async def notified(person: ChatClient, count: int) -> None:
    await until_so(lambda: len(person.notifications) >= count, f"{count} messages arrived")


@pytest.mark.usefixtures("bot")
async def test_images_follow_their_messages_in_order_for_those_who_asked(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await subscribed(store, alice, bob)
    assert "images: on" in await alice.say("set #1 images on")
    for version in range(1, 6):
        await publish(store, [alice, bob], channel, added(f"k{version}"), base=version)
        await notified(alice, 2 * version)
    told = alice.notifications
    assert [message.file for message in told] == ["", PICTURE] * 5
    assert [message.body for message in told[1::2]] == [PICTURE] * 5
    assert [f"Episode k{number}" in message.body for number, message in enumerate(told[::2], 1)] == [True] * 5
    assert len({message.id for message in told}) == len(alice.received) - 1  # one is the reply to the command
    await bob.wait_for(lambda message: "Episode k5" in message.body)
    assert not any(message.file for message in bob.notifications)


@pytest.mark.usefixtures("bot")
async def test_several_entries_and_edits_have_no_image(person: Person, store: Store) -> None:
    alice = await person()
    channel = await subscribed(store, alice)
    await alice.say("set images on")
    await publish(store, [alice], channel, added("a"), added("b"), base=1)
    await alice.wait_for(lambda message: "Episode b" in message.body)
    await publish(store, [alice], channel, msgspec.structs.replace(added("b"), kind="replacement"), base=2)
    await alice.wait_for(lambda message: "Edited:" in message.body)
    await alice.say("list")  # answers come after everything that was sent before
    assert not any(message.file for message in alice.received)


@pytest.mark.usefixtures("bot")
async def test_a_file_and_a_text_of_the_chosen_length_are_shown(person: Person, store: Store) -> None:
    alice = await person()
    channel = await subscribed(store, alice)
    await alice.say("set text 1200")
    await publish(store, [alice], channel, added("a"), base=1)
    message = await alice.wait_for(lambda message: "Episode a" in message.body)
    assert message.body.endswith("…\n▶ Audio · 34.2 MB · 42:10 · https://example.org/1.mp3")
    assert 1_190 < len(message.body.splitlines()[3]) <= 1_200
    await alice.say("set #1 text off")
    await publish(store, [alice], channel, added("b"), base=2)
    message = await alice.wait_for(lambda message: "Episode b" in message.body)
    assert "word" not in message.body
    await alice.say("set #1 format $title $tags $enclosure $image")
    await publish(store, [alice], channel, added("c"), base=3)
    message = await alice.wait_for(lambda message: "Episode c" in message.body)
    assert message.body == f"*A feed*\nEpisode c #open_source https://example.org/1.mp3 {PICTURE}"


def with_article(key: str) -> Change:
    before = added(key)
    entry = msgspec.structs.replace(before.entry, summary="Own text.", enclosures=(), full_text="article " * 100)
    return msgspec.structs.replace(before, entry=entry)


async def wants_full_texts(store: Store, channel: Channel) -> bool:
    before = await store.channels.predecessor(channel.id, channel.version)
    return before.full_texts_until_s > 0


@pytest.mark.usefixtures("bot")
async def test_full_texts_are_shown_to_those_who_want_them_and_the_own_text_to_others(
    person: Person, store: Store
) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await subscribed(store, alice, bob)
    assert not await wants_full_texts(store, channel)
    assert "text: full" in await alice.say("set #1 text full")
    assert await wants_full_texts(store, channel)
    await publish(store, [alice, bob], channel, with_article("a"), base=1)
    for reader, text in ((alice, "article " * 99 + "article"), (bob, "Own text.")):
        message = await reader.wait_for(lambda message: "Episode a" in message.body)
        assert message.body.splitlines()[3] == text
    without = msgspec.structs.replace(with_article("b"), entry=msgspec.structs.replace(added("b").entry, full_text=""))
    await publish(store, [alice, bob], channel, without, base=2)
    message = await alice.wait_for(lambda message: "Episode b" in message.body)
    assert message.body.splitlines()[3].startswith("word word")
    assert "text: 300" in await alice.say("set #1 text 300")
    await publish(store, [alice], channel, with_article("c"), base=3)
    message = await alice.wait_for(lambda message: "Episode c" in message.body)
    assert "Own text." in message.body


@pytest.mark.usefixtures("bot")
async def test_an_edit_shows_the_article_again(person: Person, store: Store) -> None:
    alice = await person()
    channel = await subscribed(store, alice)
    await alice.say("set #1 text full")
    await publish(store, [alice], channel, with_article("a"), base=1)
    await alice.wait_for(lambda message: "Episode a" in message.body)
    await publish(store, [alice], channel, msgspec.structs.replace(with_article("a"), kind="replacement"), base=2)
    message = await alice.wait_for(lambda message: "Edited:" in message.body)
    assert "article article" in message.body


@pytest.mark.usefixtures("bot")
async def test_full_texts_are_requested_for_new_subscriptions_and_by_each_delivery(
    person: Person, store: Store
) -> None:
    alice = await person()
    channel, other = await subscribed(store, alice), await make_channel(store, "https://example.net/feed")
    await alice.say("set text full")
    assert await wants_full_texts(store, channel)
    assert not await wants_full_texts(store, other)
    await alice.say("https://example.net/feed")
    assert await wants_full_texts(store, other)
    await store.redis.call("HDEL", keys.channel(channel.id), "full_texts")
    await publish(store, [alice], channel, added("a"), base=1)
    await alice.wait_for(lambda message: "Episode a" in message.body)
    assert await wants_full_texts(store, msgspec.structs.replace(channel, version=2))
