"""Channels that are not polled although they should be are reported."""

import json
import struct
import time
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from service.console.app_keys import CHANNEL_CACHE
from service.model import PollResult
from service.overlay.ring import balanced_id
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from tests.support.channels import make_channel, polled
from tests.support.console import Visitor
from tests.support.waiting import until

INTERVAL_S = 600.0
NOW_S = time.time()
LATE_S = NOW_S - 3 * INTERVAL_S - 1
Change = Callable[[Store, str], Awaitable[object]]


async def make_late(store: Store, url: str, *, polled_s: float = LATE_S) -> str:
    """Create a channel with a subscriber that has not been polled for three poll intervals."""
    channel = await make_channel(store, url)
    await store.subscriptions.subscribe("alice@localhost", channel.id)
    await polled(store, channel.id, PollResult(at_s=polled_s, outcome="unchanged", node="a" * 40))
    await note_pace(store, channel.id, INTERVAL_S)
    return channel.id


async def note_pace(store: Store, cid: str, interval_s: float) -> None:
    """Record a poll interval as a channel's owner did long ago."""
    await store.redis.call("HSET", keys.channel(cid), "paces", struct.pack("<If", int(LATE_S), interval_s))


async def join(store: Store, joined_s: float = 1_000.0) -> None:
    """Add a worker to the ring that joined at this time and polls nothing."""
    node = await store.ring.join("w", "", 3_600, balanced_id)
    packed = await store.redis.call("HGET", keys.RING_NODES, node.id)
    value = packed.replace(repr(node.joined_s).encode(), repr(joined_s).encode())
    assert value != packed
    await store.redis.call("HSET", keys.RING_NODES, node.id, value)
    await store.redis.call("XADD", keys.RING_CHANGES, f"{time.time_ns() // 1_000}-0", "n", node.id)


async def test_an_unpolled_channel_needs_attention(
    store: Store, served: tuple[str, web.Application], ada: Visitor
) -> None:
    await join(store)
    late = await make_late(store, "https://example.org/late")
    await make_late(store, "https://example.org/prompt", polled_s=NOW_S)
    await store.channels.adopt([late], "f" * 40)

    async def sentence() -> str:
        _, body = await ada.get("/api/v1/overview")
        told = json.loads(body)["attention"]
        return next((each for each in told if "three poll intervals" in each), "")

    assert (await until(sentence, "it is told")).startswith("1 channel has not been polled for three poll intervals")
    assert "“A feed”" in await sentence()
    assert REGISTRY.get_sample_value("coronet_unpolled_channels") == 1
    await polled(store, late, PollResult(at_s=time.time(), outcome="unchanged", node="a" * 40))
    await served[1][CHANNEL_CACHE].reload([late])

    async def silent() -> bool:
        return not await sentence()

    await until(silent, "it is polled again")
    assert REGISTRY.get_sample_value("coronet_unpolled_channels") == 0


EXCUSES: dict[str, Change] = {
    "paused": lambda store, cid: store.admin_settings.pause([cid], 60.0),
    "publisher's wish": lambda store, cid: store.request_budgets.pause(cid, 60.0),
    "wish that ended just now": lambda store, cid: store.request_budgets.pause(cid, 0.001),
    "resumed": lambda store, cid: store.admin_settings.pause([cid], 0.0),
    "blocked": lambda store, _: store.blocked_hosts.add("example.org", HostBlock("ada", 1.0)),
    "dead": lambda store, cid: store.redis.call("HSET", keys.channel(cid), "condition", "dead"),
    "quarantined": lambda store, cid: store.redis.call("HSET", keys.channel(cid), "condition", "quarantined"),
    "dormant": lambda store, cid: store.redis.call("HSET", keys.channel(cid), "dormant", "1"),
    "rarely polled": lambda store, cid: note_pace(store, cid, 86_400.0),
    "not polled at all": lambda store, cid: note_pace(store, cid, 0.0),
    "unwanted": lambda store, cid: store.subscriptions.unsubscribe("alice@localhost", cid),
}


@pytest.mark.parametrize("excuse", EXCUSES)
async def test_a_channel_excluded_from_polling_is_not_overdue(
    store: Store, served: tuple[str, web.Application], excuse: str
) -> None:
    cache = served[1][CHANNEL_CACHE]
    await join(store)
    late, excused = [await make_late(store, f"https://{name}/feed") for name in ("late.example", "example.org")]
    await EXCUSES[excuse](store, excused)

    async def found() -> tuple[str, ...]:
        await cache.refresh()
        return cache.overdue

    assert await until(found, "the other one is late") == (late,)


async def test_a_new_fleet_has_no_unpolled_channels(store: Store, served: tuple[str, web.Application]) -> None:
    cache = served[1][CHANNEL_CACHE]
    await join(store, time.time())
    await make_late(store, "https://example.org/late")
    await cache.refresh()
    assert cache.rows
    assert cache.overdue == ()


async def test_a_channel_that_was_never_polled_is_reported(store: Store, served: tuple[str, web.Application]) -> None:
    cache = served[1][CHANNEL_CACHE]
    await join(store)
    channel = await make_channel(store, "https://example.org/never")  # made long ago
    await store.subscriptions.subscribe("alice@localhost", channel.id)

    async def found() -> tuple[str, ...]:
        await cache.refresh()
        return cache.overdue

    assert await until(found, "it is late") == (channel.id,)
