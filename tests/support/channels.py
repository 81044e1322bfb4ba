"""Functions that create, poll and change channels in a store."""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from service.clock import SystemClock
from service.feeds.canonical_urls import channel_id
from service.feeds.channel_health import ChannelHealth, PollReport, symptom_of
from service.location.content_cache import merge_latest
from service.model import Change, Channel, ChannelId, Delta, Entry, PollResult, Validators
from service.store import Store
from service.store.channels.channel_records import Snapshot, decode_snapshot
from service.store.client import keys
from workers.ownership.directory_registration import DirectoryRegistrar

SNAPSHOT = Snapshot(Validators(etag='"1"'), b"", "A feed", "https://example.org/", language="en-GB")


async def make_channel(
    store: Store,
    url: str = "https://example.org/feed",
    *,
    listed: bool = False,
    kind: Literal["feed", "page"] = "feed",
    created_s: float = 1_000.0,
) -> Channel:
    """Create a channel with one entry at version 1."""
    wanted = Channel(channel_id(url), url, created_s=created_s, listed=listed, kind=kind)
    return await store.channels.create(wanted, SNAPSHOT, [Entry("first", "First", url + "/1")], 1_000.0)


async def polled(store: Store, cid: ChannelId, result: PollResult, permanent_url: str = "") -> ChannelHealth | None:
    """Record the result of a poll; return the data from which its health is judged, None if no judgement is due."""
    channel = await store.channels.get(cid)
    report = PollReport(result, symptom_of(channel.url if channel else "", result, permanent_url))
    return (await store.channels.record_polls([(cid, report)]))[0]


async def publish(store: Store, channel: Channel, *keys: str, base: int = 1, node: str = "a" * 40) -> Delta:
    """Adopt the channel and publish new entries as one version."""
    entries = (Entry(key, f"Entry {key}", f"https://example.org/{key}") for key in keys)
    return await change(store, channel, *(Change("addition", entry) for entry in entries), base=base, node=node)


async def change(
    store: Store,
    channel: Channel,
    *changes: Change,
    base: int = 1,
    node: str = "a" * 40,
    detected_s: float | None = None,
) -> Delta:
    """Adopt the channel and publish changes as one version, detected now if no time is given."""
    (state,) = await store.channels.adopt([channel.id], node)
    assert state is not None
    delta = Delta(channel.id, base, 0, detected_s or time.time(), changes)
    before = await store.channels.predecessor(channel.id, base)
    snapshot = msgspec.structs.replace(SNAPSHOT, latest=merge_latest(changes, before.latest))
    return await store.channels.publish(delta, snapshot, state.epoch, silent=False, before=before)


async def restate(store: Store, cid: ChannelId, **stated: object) -> None:
    """Replace fields of the :class:`StoredSnapshot` of a channel."""
    packed = await store.redis.call("HGET", keys.channel(cid), "snapshot")
    changed = msgspec.structs.replace(decode_snapshot(packed), **stated)
    await store.redis.call("HSET", keys.channel(cid), "snapshot", msgspec.msgpack.encode(changed))


async def register_names(store: Store, counts: Sequence[tuple[ChannelId, int]]) -> None:
    """Register channels in the directory; ``counts`` has pairs of a channel and its number of subscribers."""
    registrar = DirectoryRegistrar(store, SystemClock(), 3)
    await registrar.schedule_changed(counts)
    await registrar.register_due()


async def count_channels(store: Store) -> int:
    """Return the number of registered channels."""
    return sum(await store.channels.bucket_sizes(keys.REGISTRY_BUCKETS))


async def no_article(_page: Channel) -> str:
    """Read no article, for owners of channels."""
    return ""
