"""A channel moves to another part of the same page: the contents of the two parts have no entries in common."""

import contextlib

from service.corona.fleet_policy import ChannelBounds
from service.errors import StoreUnavailable
from service.feeds.canonical_urls import channel_id, page_url
from service.model import Change, Channel, Entry, Validators
from service.store import Store
from service.store.client import keys
from tests.contract.test_channel_moves import ALICE, carry_out, say_moved, tell_everybody, told_to
from tests.contract.test_subscriptions import DyingLink
from tests.support.channels import SNAPSHOT, change, make_channel, publish

PAGE = "https://example.org/prices"
PART = page_url(PAGE, "main table")
PAGE_ID, PART_ID = channel_id(PAGE), channel_id(PART)


async def _part_is_watched(store: Store) -> None:
    """A page with a subscriber and a decided move to another part of the page, which is already polled."""
    await make_channel(store, PAGE, kind="page")
    await store.subscriptions.subscribe(ALICE, PAGE_ID)
    await tell_everybody(store, PAGE_ID, "of the whole page")
    await make_channel(store, PART, kind="page")
    part = Channel(PART_ID, PART)
    seen = Change("addition", Entry("seen before", "seen before"))
    await change(store, part, seen, detected_s=2_000.0)  # it is decided at 3,000 s
    await say_moved(store, PAGE, PART)
    await tell_everybody(store, PART_ID, "seen since")  # at 5,000 s


async def test_subscribers_get_changes_of_the_new_part_since_the_decision(store: Store) -> None:
    await _part_is_watched(store)
    for _ in range(2):
        await carry_out(store, PAGE_ID)
    await tell_everybody(store, PART_ID, "after")
    assert await told_to(store, ALICE) == ["of the whole page", "moved", "seen since", "after"]
    assert [held.channel for held in await store.subscriptions.of_user(ALICE)] == [PART_ID]
    signpost = await store.channels.resolve(PAGE_ID)
    assert signpost is not None
    assert signpost.id == PART_ID


async def test_a_move_to_a_part_interrupted_at_any_step_is_completed(store: Store) -> None:
    await _part_is_watched(store)
    for survives in range(10, 200, 7):
        with contextlib.suppress(StoreUnavailable):
            await carry_out(Store(DyingLink(store.redis, survives)), PAGE_ID)
    await carry_out(store, PAGE_ID)
    await tell_everybody(store, PART_ID, "after")
    assert await told_to(store, ALICE) == ["of the whole page", "moved", "seen since", "after"]


async def test_the_first_poll_of_an_unpolled_part_delivers_nothing(store: Store) -> None:
    """The content of one part of a page cannot be compared with another part."""
    await make_channel(store, PAGE, kind="page")
    await publish(store, Channel(PAGE_ID, PAGE), "second")
    await say_moved(store, PAGE, PART)
    await carry_out(store, PAGE_ID)
    (part,) = await store.channels.states([PART_ID])
    assert part is not None
    assert (part.channel.kind, part.channel.title, part.channel.dormant) == ("page", SNAPSHOT.title, False)
    assert (await store.channels.content(PART_ID))[2].memory == b""
    assert part.validators == Validators()
    assert await store.channels.latest(PART_ID, 9) == ()


async def test_admin_settings_move_without_replacing_existing_ones(store: Store) -> None:
    await make_channel(store, PAGE, kind="page")
    await store.admin_settings.set_tags([(PAGE_ID, ("shop", "daily"))])
    await store.admin_settings.set_note(PAGE_ID, "Ask Bob.")
    await store.admin_settings.pause([PAGE_ID], 10_000_000_000.0)
    await store.poll_bounds.set(PAGE_ID, ChannelBounds(shortest_interval_s=600.0), by="ada")
    await make_channel(store, PART, kind="page")
    await store.admin_settings.set_note(PART_ID, "Ask Eve.")
    await say_moved(store, PAGE, PART)
    await carry_out(store, PAGE_ID)
    (said,) = await store.admin_settings.read([PART_ID])
    bounded = await store.poll_bounds.get(PART_ID)
    assert said is not None
    assert bounded is not None
    assert (said.tags, await store.admin_settings.note(PART_ID)) == (("shop", "daily"), "Ask Eve.")
    assert said.paused_until_s > 0
    assert (bounded.bounds, bounded.by) == (ChannelBounds(shortest_interval_s=600.0), "ada")
    assert await store.poll_bounds.get(PAGE_ID) is None


async def test_a_dormant_channel_is_active_during_its_move(store: Store) -> None:
    """If a process fails, the next listing of the owner therefore finds the channel."""
    await make_channel(store, PAGE, kind="page")
    await store.channels.mark_dormant(PAGE_ID)
    await say_moved(store, PAGE, PART)
    moving = await store.channels.get(PAGE_ID)
    await carry_out(store, PAGE_ID)
    moved, part = await store.channels.get(PAGE_ID), await store.channels.get(PART_ID)
    assert moving is not None
    assert moved is not None
    assert part is not None
    assert (moving.dormant, moved.dormant) == (False, True)
    assert await store.redis.call("EXISTS", keys.incoming_moves(PART_ID)) == 0
