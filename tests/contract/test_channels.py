"""Channels: created once, versioned by one owner at a time, with a log of versions."""

import asyncio

import msgspec
import pytest

from service.errors import LeaseLost, StaleVersion
from service.location.content_cache import MAX_LATEST_ENTRIES, Content, digest_of, merge_latest, unpack_entries
from service.model import Change, Delta, Entry, PollResult
from service.store import Store
from tests.support.channels import SNAPSHOT, count_channels, make_channel, polled, publish
from tests.support.redis_nodes import on_every_node


async def test_creating_a_channel_twice_keeps_the_first(store: Store) -> None:
    first = await make_channel(store)
    delta = await publish(store, first, "second")
    again = await make_channel(store)
    assert again.version == delta.version == 2
    assert again.title == "A feed"
    assert await count_channels(store) == 1


async def test_only_the_last_adopter_publishes(store: Store) -> None:
    channel = await make_channel(store)
    (old,) = await store.channels.adopt([channel.id], "a" * 40)
    (new,) = await store.channels.adopt([channel.id], "b" * 40)
    assert old is not None
    assert new is not None
    delta = Delta(channel.id, 1, 0, 2_000.0, (Change("addition", Entry("x")),))
    with pytest.raises(LeaseLost):
        await store.channels.publish(delta, SNAPSHOT, old.epoch, silent=False)
    assert (await store.channels.publish(delta, SNAPSHOT, new.epoch, silent=False)).version == 2
    assert await store.channels.record_fanout(channel.id, old.epoch, 2, "") is False


async def test_the_owner_of_a_removed_channel_does_not_own_its_replacement(
    store: Store,
) -> None:
    channel = await make_channel(store)
    (old,) = await store.channels.adopt([channel.id], "a" * 40)
    assert old is not None
    await store.remove_channel(channel.id)
    await make_channel(store)
    (new,) = await store.channels.adopt([channel.id], "b" * 40)
    assert new is not None
    with pytest.raises(LeaseLost):
        await store.channels.publish(Delta(channel.id, 1, 0, 2_000.0, ()), SNAPSHOT, old.epoch, silent=False)


async def test_exactly_one_of_many_deltas_on_one_base_becomes_a_version(store: Store) -> None:
    channel = await make_channel(store)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    deltas = [Delta(channel.id, 1, 0, 2_000.0, (Change("addition", Entry(str(i))),)) for i in range(8)]
    ends = await asyncio.gather(
        *(store.channels.publish(delta, SNAPSHOT, state.epoch, silent=False) for delta in deltas),
        return_exceptions=True,
    )
    winners = [end for end in ends if isinstance(end, Delta)]
    losers = [end for end in ends if isinstance(end, StaleVersion)]
    assert (len(winners), len(losers)) == (1, 7)
    assert {loser.current for loser in losers} == {2}
    assert await store.channels.delta(channel.id, 2) == winners[0]


async def test_a_silent_delta_needs_no_fan_out_and_ends_dormancy(store: Store) -> None:
    channel = await make_channel(store)
    await store.channels.mark_dormant(channel.id)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    assert state.channel.dormant
    delta = Delta(channel.id, 1, 0, 2_000.0, (Change("addition", Entry("missed")),))
    assert (await store.channels.publish(delta, SNAPSHOT, state.epoch, silent=True)).initial
    (after,) = await store.channels.states([channel.id])
    assert after is not None
    assert (after.fanned_version, after.channel.version, after.channel.dormant) == (2, 2, False)


async def test_a_channel_with_a_subscriber_stays_active(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("alice@localhost", channel.id)
    await store.channels.mark_dormant(channel.id)
    now = await store.channels.get(channel.id)
    assert now is not None
    assert not now.dormant


async def test_the_latest_entries_are_newest_first_without_duplicates(store: Store) -> None:
    channel = await make_channel(store)
    await publish(store, channel, "second", "third")
    await publish(store, channel, "fourth", "second", base=2)
    assert [entry.key for entry in await store.channels.latest(channel.id, 3)] == ["second", "fourth", "third"]
    assert [entry.key for entry in await store.channels.latest(channel.id, 9)][-1] == "first"


async def test_named_channels_have_their_pairs_and_the_titles_of_their_latest_entries(store: Store) -> None:
    channel = await make_channel(store)
    await publish(store, channel, "second", "third")
    await store.channels.set_content_name(channel.id, 2, ["word=feed", "tag=rust"])
    named, missing = await store.channels.get_named([channel.id, "f" * 40], with_latest=True)
    assert missing is None
    assert named is not None
    assert named.channel == await store.channels.get(channel.id)
    assert named.pairs == {"word=feed", "tag=rust"}
    assert not named.pairs.isdisjoint(["tag=go", "tag=rust"])
    latest = await store.channels.latest(channel.id, MAX_LATEST_ENTRIES)
    assert named.latest_titles == [entry.title for entry in latest]
    (other,) = await store.channels.get_named([channel.id])
    assert other is not None
    assert other.latest_titles == []


async def test_polls_are_stored_and_failures_last_until_a_success(store: Store) -> None:
    channel = await make_channel(store)
    outcomes = [(10.0, "unchanged"), (20.0, "unreachable"), (30.0, "unreachable")]
    for at_s, outcome in outcomes:
        await polled(store, channel.id, PollResult("a" * 40, at_s, outcome))
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert state.failing_since_s == 20.0
    await polled(store, channel.id, PollResult("a" * 40, 40.0, "new"))
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert state.failing_since_s is None
    assert [poll.at_s for poll in await store.channels.polls(channel.id, 2)] == [40.0, 30.0]


async def test_a_removed_channel_leaves_no_subscription_and_no_key(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("alice@localhost", channel.id)
    await store.remove_channel(channel.id)
    assert await store.subscriptions.of_user("alice@localhost") == []
    assert await store.channels.get(channel.id) is None
    assert not any(await on_every_node(store, "KEYS", f"*{channel.id}*"))


async def test_a_version_is_stored_with_its_content_and_digest(store: Store) -> None:
    channel = await make_channel(store)
    version, digest, content = await store.channels.content(channel.id)
    assert (version, digest_of(content)) == (1, digest)
    assert unpack_entries(content.latest) == await store.channels.latest(channel.id, MAX_LATEST_ENTRIES)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    assert state.digest == digest
    changes = (Change("addition", Entry("second", "Second")),)
    latest = merge_latest(changes, await store.channels.latest(channel.id, MAX_LATEST_ENTRIES))
    snapshot = msgspec.structs.replace(SNAPSHOT, memory=b"remembered", latest=latest)
    await store.channels.publish(Delta(channel.id, 1, 0, 2_000.0, changes), snapshot, state.epoch, silent=False)
    version, digest, content = await store.channels.content(channel.id)
    assert (version, digest, content.memory) == (2, digest_of(snapshot.content), b"remembered")
    assert [entry.key for entry in unpack_entries(content.latest)] == ["second", "first"]


async def test_the_content_of_a_missing_channel_is_empty(store: Store) -> None:
    assert await store.channels.content("f" * 40) == (0, b"", Content(b"", b""))
    assert await store.channels.latest("f" * 40, MAX_LATEST_ENTRIES) == ()
