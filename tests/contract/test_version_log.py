"""The log of a channel on a real Redis: a busy week, and records of a former version."""

import asyncio

import msgspec

from bots.delivery.message_bodies import load_versions
from service.corona.update_rates import UpdateHistory
from service.feeds.entries.version_parts import split_version
from service.location.content_cache import digest_of, merge_latest
from service.model import Change, Delta, Entry, FeedMetadata, PollingHints, PollResult, Validators
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.client import keys
from tests.support.channels import SNAPSHOT, make_channel, publish
from tests.support.ticker import Ticker

UID = keys.user_id("alice@example.org")
DAY_S = 86_400


async def test_nobody_who_is_a_day_behind_loses_an_entry_of_a_busy_week(store: Store) -> None:
    channel, gap_s, began_s = await make_channel(store), 1_800.0, 1e9
    await store.subscriptions.subscribe("alice@example.org", channel.id)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    queued: list[str] = []
    told: list[str] = []
    for delta in Ticker(channel.id, gap_s, 2_000, began_s).deltas(int(7 * DAY_S / gap_s)):
        versioned = await store.channels.publish(delta, None, state.epoch, silent=False)
        await store.outbox.enqueue([UID], channel.id, versioned.version, delta.detected_s, split_version(versioned))
        queued.append(delta.changes[0].entry.key)
        is_day_behind = delta.detected_s - began_s >= DAY_S
        if is_day_behind and versioned.version % 6 == 0:
            told += await deliver(store, 6)
    assert told == queued[: len(told)]
    assert len(told) > 250
    assert await store.channels.delta(channel.id, 2) is None
    fields = await store.redis.call("HGETALL", keys.channel(channel.id))
    assert sum(len(name) + len(value) for name, value in fields.items()) <= 110_000


async def deliver(store: Store, count: int) -> list[str]:
    """Claim Alice's oldest items; return the keys of their entries."""
    batch = (await store.outbox.claim([UID], count, 1_000.0))[UID]
    await store.outbox.complete(done=[(UID, batch.message_id)])
    found = await asyncio.gather(*(load_versions(store.channels, item) for item in batch.items))
    assert [versions.missing_count for versions in found] == [0] * count
    return [change.entry.key for versions in found for delta in versions.deltas for change in delta.changes]


async def test_versions_are_read_alone_and_together_while_they_move_to_blocks(store: Store) -> None:
    channel = await make_channel(store)
    deltas = [(await store.channels.deltas(channel.id, 1, 1))[0]]
    deltas += [await publish(store, channel, f"entry {version}", base=version) for version in range(1, 70)]
    assert await store.channels.deltas(channel.id, 1, 70) == deltas
    assert await store.channels.versions(channel.id, 70) == deltas[::-1]
    assert await store.channels.versions(channel.id, 3, before=66) == deltas[62:65][::-1]
    assert [await store.channels.delta(channel.id, version) for version in (1, 16, 63, 64, 70)] == [
        deltas[version - 1] for version in (1, 16, 63, 64, 70)
    ]
    assert await store.channels.delta(channel.id, 71) is None
    assert [entry.key for entry in await store.channels.latest(channel.id, 12)] == [
        f"entry {version}" for version in range(69, 57, -1)
    ]


HINTS, METADATA, HISTORY = PollingHints(ttl_s=60.0), FeedMetadata(("garden",), "WordPress"), UpdateHistory(since_s=7.0)


async def make_former(store: Store, versions: int) -> tuple[str, list[Delta]]:
    """Store a channel as a former version of Coronet did, with a log and a poll; return its id and log."""
    channel = await make_channel(store)
    deltas = [
        Delta(channel.id, number, number + 1, 1e9 + number, (Change("addition", Entry(f"{number}", "Title")),))
        for number in range(versions)
    ]
    deltas[0] = msgspec.structs.replace(deltas[0], initial=True)
    latest = merge_latest([change for delta in deltas for change in delta.changes], ())
    content = msgspec.structs.replace(SNAPSHOT, latest=latest).content
    await store.redis.call("DEL", keys.channel(channel.id))
    fields: dict[str, str | bytes | int] = {
        "url": channel.url,
        "title": "Former",
        "link": "https://example.org/",
        "language": "en",
        "kind": "page",
        "created": "1000.5",
        "private": "0",
        "listed": "1",
        "version": versions,
        "fanned": versions,
        "epoch": 5,
        "owner": "a" * 40,
        "etag": '"7"',
        "last_modified": "then",
        "body_sha256": "ab" * 32,
        "memory": content.memory,
        "latest": content.latest,
        "digest": digest_of(content),
        "wishes": msgspec.msgpack.encode(HINTS),
        "imprint": msgspec.msgpack.encode(METADATA),
        "updates": msgspec.msgpack.encode(HISTORY),
        "name": msgspec.msgpack.encode(["lang=en"]),
        "named": 1,
    }
    await store.redis.call("HSET", keys.channel(channel.id), *(part for field in fields.items() for part in field))
    for delta in deltas:
        added = ("XADD", keys.former_channel_log(channel.id), f"{delta.version}-0", "d", msgspec.msgpack.encode(delta))
        await store.redis.call(*added)
    result = msgspec.msgpack.encode(PollResult("a" * 40, 9.0, "new"))
    await store.redis.call("LPUSH", keys.poll_results(channel.id), result)
    return channel.id, deltas


def is_as_before(state: ChannelState | None, versions: int) -> None:
    assert state is not None
    channel = state.channel
    assert (channel.title, channel.link, channel.language) == ("Former", "https://example.org/", "en")
    assert channel.kind == "page"
    assert (channel.created_s, channel.listed, channel.private, channel.version) == (1000.5, True, False, versions)
    assert state.validators == Validators('"7"', "then", "ab" * 32)
    assert (state.polling_hints, state.updates, state.owner) == (HINTS, HISTORY, "a" * 40)
    assert len(state.digest) == 16


async def test_records_of_a_former_version_are_read_and_converted(store: Store) -> None:
    cid, deltas = await make_former(store, 150)
    assert await store.channels.delta(cid, 77) == deltas[76]
    is_as_before((await store.channels.states([cid]))[0], 150)
    assert await store.channels.deltas(cid, 1, 150) == deltas
    assert await store.channels.feed_metadata([cid]) == [METADATA]
    assert await store.channels.content_names([cid]) == [frozenset({"lang=en"})]
    assert [poll.at_s for poll in await store.channels.polls(cid, 9)] == [9.0]
    assert await store.redis.call("EXISTS", keys.former_channel_log(cid)) == 0
    assert await store.redis.call("HEXISTS", keys.channel(cid), "title") == 0


async def test_a_channel_of_a_former_version_continues(store: Store) -> None:
    cid, deltas = await make_former(store, 15)
    (state,) = await store.channels.adopt([cid], "a" * 40)
    is_as_before(state, 15)
    assert state is not None
    deltas += [await publish(store, state.channel, f"{base}", base=base) for base in range(15, 40)]
    assert await store.channels.deltas(cid, 1, 40) == deltas
    assert len(await store.channels.latest(cid, 30)) == 30
