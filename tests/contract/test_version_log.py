"""The log of a channel on a real Redis."""

import asyncio

from bots.delivery.batch_renderer import load_versions
from service.feeds.entries.duplicate_articles import hash_version
from service.store import Store
from service.store.client import keys
from tests.support.channels import make_channel, publish
from tests.support.ticker import Ticker

UID = keys.user_id("alice@example.org")
DAY_S = 86_400


async def test_a_subscriber_a_day_behind_gets_all_entries_of_a_busy_week(store: Store) -> None:
    channel, gap_s, began_s = await make_channel(store), 1_800.0, 1e9
    await store.subscriptions.subscribe("alice@example.org", channel.id)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    queued: list[str] = []
    told: list[str] = []
    for delta in Ticker(channel.id, gap_s, 2_000, began_s).deltas(int(7 * DAY_S / gap_s)):
        versioned = await store.channels.publish(delta, None, state.epoch, silent=False)
        await store.outbox.enqueue([UID], channel.id, versioned.version, delta.detected_s, hash_version(versioned))
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


async def test_single_versions_and_ranges_are_readable_across_blocks(store: Store) -> None:
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
