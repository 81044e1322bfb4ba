"""Units of a divided fan-out: one worker at a time has a claim, and only it records progress."""

import asyncio

import pytest

from service.model import Channel
from service.store import Store
from service.store.client import keys
from service.store.delivery import fanout_units
from service.store.delivery.fanout_units import ClaimedUnit, UnitsLeft
from tests.support.channels import make_channel, publish

UNITS = {"0*": "", "10*": "2.ab", "11*": ""}
HOUR_MS = 3_600_000


async def divided(store: Store) -> tuple[Channel, int]:
    """Create a channel with a new version whose fan-out is divided; return it and its epoch."""
    channel = await make_channel(store)
    await publish(store, channel, "second")
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert await store.fanout_units.divide(channel.id, state.epoch, 2, UNITS)
    return channel, state.epoch


async def claim(store: Store, channel: Channel) -> ClaimedUnit:
    unit = await store.fanout_units.claim(channel.id)
    assert isinstance(unit, ClaimedUnit)
    return unit


async def test_each_unit_is_claimed_once(store: Store) -> None:
    channel, _ = await divided(store)
    units = [await claim(store, channel) for _ in UNITS]
    assert {unit.label: unit.cursor for unit in units} == UNITS
    assert {(unit.version, unit.unfinished) for unit in units} == {(2, 3)}
    assert await store.fanout_units.claim(channel.id, 3) is None
    left = await store.fanout_units.claim(channel.id, 2)
    assert isinstance(left, UnitsLeft)
    assert 0 < left.wait_s <= fanout_units.CLAIM_S


async def test_all_units_are_finished_before_the_version_is(store: Store) -> None:
    channel, epoch = await divided(store)
    for unit in [await claim(store, channel) for _ in UNITS]:
        assert await store.fanout_units.record(channel.id, unit, "3.cd", 5)
        assert await store.fanout_units.record(channel.id, unit, "", 2)
        assert not await store.fanout_units.record(channel.id, unit, "", 2)  # a repeated command counts nothing twice
    assert await store.fanout_units.claim(channel.id) == UnitsLeft(21, 0.0)
    assert await store.channels.record_fanout(channel.id, epoch, 2, "")
    assert await store.fanout_units.claim(channel.id) is None
    assert not await store.redis.call("EXISTS", keys.fanout_units(channel.id))


async def test_a_unit_can_be_claimed_again_after_its_claim_expires(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout_units, "CLAIM_S", 0.05)
    channel, _ = await divided(store)
    first = await claim(store, channel)
    assert await store.fanout_units.record(channel.id, first, "1.ff", 1)
    await asyncio.sleep(0.06)
    again = next(unit for unit in [await claim(store, channel) for _ in UNITS] if unit.label == first.label)
    assert again.cursor == "1.ff"
    assert not await store.fanout_units.record(channel.id, first, "", 1)
    assert await store.fanout_units.record(channel.id, again, "", 1)


async def test_a_claim_that_expires_too_far_in_the_future_is_ignored(store: Store) -> None:
    channel, _ = await divided(store)
    first = await claim(store, channel)
    until_ms = (await store.redis.call("TIME"))[0] * 1000 + HOUR_MS
    await store.redis.call("HSET", keys.fanout_units(channel.id), first.label, f"{until_ms} {first.token} 1.ff")
    assert first.label in [(await claim(store, channel)).label for _ in UNITS]


async def test_only_the_owner_can_divide_a_fan_out_and_only_for_the_next_version(store: Store) -> None:
    channel, epoch = await divided(store)
    unit = await claim(store, channel)
    assert await store.fanout_units.record(channel.id, unit, "", 1)
    assert await store.fanout_units.divide(channel.id, epoch, 2, UNITS)  # as it is
    assert (await claim(store, channel)).unfinished == 2
    assert not await store.fanout_units.divide(channel.id, epoch, 3, UNITS)
    assert not await store.fanout_units.divide(channel.id, epoch - 1, 2, UNITS)
    await store.channels.adopt([channel.id], "b" * 40)
    assert not await store.channels.record_fanout(channel.id, epoch, 2, "")
    assert (await claim(store, channel)).unfinished == 2  # the next owner finds them


async def test_a_unit_of_an_earlier_version_is_not_recorded(store: Store) -> None:
    channel, epoch = await divided(store)
    former = await claim(store, channel)
    assert await store.channels.record_fanout(channel.id, epoch, 2, "")
    await publish(store, channel, "third", base=2)
    assert await store.fanout_units.divide(channel.id, epoch + 1, 3, UNITS)
    assert (await claim(store, channel)).label == former.label
    assert not await store.fanout_units.record(channel.id, former, "", 1)


async def test_a_channel_without_a_divided_fan_out_has_no_units(store: Store) -> None:
    channel, _ = await divided(store)
    await store.channels.delete(channel.id)
    await store.channels.finish_deletion(channel.id)
    assert await store.fanout_units.claim(channel.id) is None
    assert not await store.redis.call("EXISTS", keys.channel(channel.id), keys.fanout_units(channel.id))
