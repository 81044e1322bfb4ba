"""Poll bounds of channels are available to every node, with the earlier bounds."""

from unittest import mock

import pytest

from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.errors import LimitReached
from service.store import Store
from service.store.coordination.poll_bounds_store import BoundsSnapshot
from tests.support.channels import make_channel

HOURLY, SOON = ChannelBounds(shortest_interval_s=3_600.0), ChannelBounds(longest_wait_s=60.0)
CHANNEL = "c" * 40


async def test_the_last_bounds_apply_and_include_the_previous_ones(store: Store) -> None:
    assert await store.poll_bounds.get(CHANNEL) is None
    await store.poll_bounds.set(CHANNEL, HOURLY, by="ada")
    await store.poll_bounds.set(CHANNEL, SOON, by="eve")
    await store.poll_bounds.set(CHANNEL, SOON, by="ada")
    found = await store.poll_bounds.get(CHANNEL)
    assert found is not None
    assert (found.bounds, found.before, found.by) == (SOON, HOURLY, "eve")


async def test_bounds_are_read_only_if_they_have_changed(store: Store) -> None:
    nothing = await store.poll_bounds.load(BoundsSnapshot())
    assert nothing.by_channel == {}
    await store.poll_bounds.set(CHANNEL, HOURLY)
    known = await store.poll_bounds.load(nothing)
    assert known.by_channel == {CHANNEL: HOURLY}
    assert await store.poll_bounds.load(known) is known
    await store.poll_bounds.set(CHANNEL, NO_BOUNDS)
    assert (await store.poll_bounds.load(known)).by_channel == {}


async def test_the_bounds_of_a_removed_channel_are_deleted(store: Store) -> None:
    channel = await make_channel(store)
    await store.poll_bounds.set(channel.id, HOURLY)
    known = await store.poll_bounds.load(BoundsSnapshot())
    await store.remove_channel(channel.id)
    assert (await store.poll_bounds.load(known)).by_channel == {}
    assert await store.poll_bounds.get(channel.id) is None


async def test_the_number_of_channels_with_bounds_is_limited(store: Store) -> None:
    with mock.patch("service.store.coordination.poll_bounds_store.MAX_BOUNDED_CHANNELS", 1):
        await store.poll_bounds.set(CHANNEL, HOURLY)
        await store.poll_bounds.set(CHANNEL, SOON)
        with pytest.raises(LimitReached, match="have bounds of their own already"):
            await store.poll_bounds.set("d" * 40, HOURLY)
