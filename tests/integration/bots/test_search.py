"""Search and saved searches: users find public channels and their own, never the private channels of others."""

import time

import pytest

from service.model import Change, Channel, Entry
from service.store import Store
from service.store.channels.public_entries import entry_name
from service.store.directory.matrix_directory import ContentName
from tests.support.bot_in_process import Person
from tests.support.channels import change, make_channel, register_names
from workers.ownership.fanout import FanOut

pytestmark = pytest.mark.usefixtures("bot")

OURS, SECRET, FEWS = (f"https://example.org/{rest}" for rest in ("feed", "feed?token=abc", "few"))


async def followed(store: Store, url: str, subscribers: int) -> Channel:
    channel = await make_channel(store, url)
    for number in range(subscribers):
        await store.subscriptions.subscribe(f"reader{number}@nowhere.invalid", channel.id)
    return channel


async def published(store: Store, channel: Channel, title: str) -> None:
    await change(store, channel, Change("addition", Entry("new", title, f"{channel.url}#new", tags=("Python",))))
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    await FanOut(store, 3).run(channel.id, state.epoch)


async def test_a_second_user_finds_only_public_channels(person: Person, store: Store) -> None:
    bob = await person()
    assert "Saved as search #1: tag=python" in await bob.say("watch tag=python")
    channels = [await followed(store, url, count) for url, count in ((SECRET, 9), (FEWS, 2), (OURS, 3))]
    for channel, title in zip(channels, ("In secret", "Among few", "For all"), strict=True):
        await published(store, channel, title)
    await register_names(store, [(channels[0].id, 9), (channels[1].id, 2), (channels[2].id, 3)])
    for channel in channels[:2]:  # as if they had been everybody's once
        pairs = frozenset({"tag=python", "host=example.org"})
        await store.channel_directory.register([ContentName(channel.id, dict.fromkeys(pairs, 1))], time.time() + 600.0)
        await store.entry_directory.register(
            [ContentName(entry_name(channel.id, "new"), dict.fromkeys(pairs, 1))], 600.0
        )
        await store.channels.set_content_name(channel.id, 9, pairs)

    told = await bob.wait_for(lambda message: "For all" in message.body)
    assert told.body.endswith("`watch #1`: tag=python")
    for asked in (
        "find tag=python",
        "find host=example.org",
        "find tag=python type=entry",
        "find host=example.org limit 1",
    ):
        answer = await bob.say(asked)
        assert "\n1. " in answer, asked
        assert "2. " not in answer, asked
        assert "`more`" not in answer, "that there was more would be a count"
        assert "There are no more results" in await bob.say("more")
    for asked in ("find tokn=abc", "find channel=example.org/few type=entry", f"unsubscribe {FEWS}"):
        assert "Among few" not in await bob.say(asked)
    everything = "\n".join(message.body for message in bob.received)
    assert "In secret" not in everything
    assert "Among few" not in everything
    assert "token" not in everything


async def _stored(store: Store) -> list[bytes]:
    """Return all keys in Redis, without those of received messages and usage counts."""
    passing = (b":unread", b":heard", b":answers", b":rate:")
    return sorted(key for key in await store.redis.call("KEYS", "*") if not any(part in key for part in passing))


async def test_invalid_queries_store_nothing(person: Person, store: Store) -> None:
    eve = await person()
    await eve.say("watch tag=python")
    await eve.say("unwatch #1")
    before = await _stored(store)
    for line, said in (
        ("colour=red", "I don't know “colour=”."),
        (" ".join(f"tag=t{number}" for number in range(1000)), "That's longer than 3,000 characters"),
        ("tag=" + "x" * 200_000, "That's longer than 3,000 characters"),
        ("tag=a\u202eb", "contains an invisible character"),
        ("/(/", "isn't a valid regular expression: a closing parenthesis is missing."),
        (r"/(a)\1/", "isn't a regular expression I can use"),
    ):
        assert said in await eve.say(f"watch {line}")
        if not line.startswith("/"):
            assert said in await eve.say(f"find {line}")
    assert "search for channels" in await eve.say("find")
    assert "You have no saved searches" in await eve.say("watch")
    assert await _stored(store) == before


async def test_users_find_their_own_private_channels(person: Person, store: Store) -> None:
    alice, bob = await person(), await person()
    few, public = await followed(store, FEWS, 1), await followed(store, OURS, 3)
    for channel in (few, public):
        await store.subscriptions.subscribe(alice.jid, channel.id)
        await published(store, channel, f"In {channel.url}")
    await register_names(store, [(few.id, 2), (public.id, 4)])
    for asked in ("find tag=python", "find host=example.org type=feed", "find pyhton"):
        answer = await alice.say(asked)
        assert answer.count("private: only you see it here") == 1, asked
        assert FEWS.removeprefix("https://") in answer
        assert OURS.removeprefix("https://") in answer
        assert FEWS.removeprefix("https://") not in await bob.say(asked), asked
    assert "Nothing matches" in await alice.say("find tag=rust")
    assert FEWS.removeprefix("https://") not in await alice.say("find tag=python type=entry limit 1")
    # A public channel that has the word as written makes a correction unnecessary.
    pairs = frozenset({"word=pyhton"})
    await store.channel_directory.register([ContentName(public.id, dict.fromkeys(pairs, 1))], time.time() + 600.0)
    await store.channels.set_content_name(public.id, 9, pairs)
    answer = await alice.say("find pyhton")
    assert OURS.removeprefix("https://") in answer
    assert FEWS.removeprefix("https://") not in answer
    await store.subscriptions.unsubscribe(alice.jid, few.id)
    assert FEWS.removeprefix("https://") not in await alice.say("find tag=python")


async def test_saving_a_search_shows_its_past_matches(person: Person, store: Store) -> None:
    bob = await person()
    for url, count, title in ((OURS, 3, "Snakes on planes"), (FEWS, 2, "Snakes among few")):
        await published(store, await followed(store, url, count), title)
    saved = await bob.say("watch snake -cats")
    assert "Saved as search #1: snake -cats" in saved
    assert "it would have found 1 entry:\n• *Snakes on planes*" in saved
    assert "Snakes on planes" in await bob.say("find snakes")
    assert "would have found nothing" in await bob.say("watch snake -planes")
