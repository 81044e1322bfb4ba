"""The owner role of a node, with other nodes that take ownership of the same channels."""

import asyncio
from typing import Any

import pytest

from service.asyncio_tasks import BackgroundTasks
from service.clock import SystemClock
from service.corona.events import (
    ChannelsChanged,
    ChannelsListed,
    Event,
    ListedChannel,
    ListOwnedChannels,
    MessageReceived,
    OwnershipTaken,
    Publish,
    PublishRefused,
)
from service.corona.messages import Candidate, ChannelRemoved
from service.corona.polling_limits import NO_LIMITS
from service.errors import CoronetError, LeaseLost, StaleVersion, StoreUnavailable
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, Delta, Entry, NodeInfo, Notice, Validators
from service.overlay.ring import RingView
from service.store import Store
from service.store.channels import registry_changes
from service.store.client import keys
from tests.support.baseline_lookups import store_only_lookup
from tests.support.channels import SNAPSHOT, make_channel, no_article
from tests.support.ring_strategies import joined_ids, ring
from tests.support.waiting import until_so
from workers.ownership.channel_ownership import ChannelOwner
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut

ALICE = "alice@localhost"
US, OTHER = "a" * 40, "b" * 40


@pytest.mark.parametrize("adopted_meanwhile", [True, False])
async def test_a_fan_out_interrupted_by_another_owner_is_refused(store: Store, *, adopted_meanwhile: bool) -> None:
    """The other node may have an outdated ring, or be dead: the protocol has to take ownership again."""
    happened: list[Event] = []

    async def note(*events: Event) -> None:
        happened.extend(events)

    tasks = BackgroundTasks()
    channel_owner = ChannelOwner(
        US,
        store,
        clock=SystemClock(),
        on_events=note,
        tasks=tasks,
        contents=store_only_lookup(store),
        fan_out=FanOut(store, 3),
        registrar=DirectoryRegistrar(store, SystemClock(), 3),
        read_article=no_article,
    )
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    (state,) = await store.channels.adopt([channel.id], US)
    assert state is not None
    delta = Delta(channel.id, 1, 0, 2_000.0, (Change("addition", Entry("x")),))
    await store.channels.publish(delta, SNAPSHOT, state.epoch, silent=False)
    if adopted_meanwhile:
        await store.channels.adopt([channel.id], OTHER)
    channel_owner._start_fan_out(channel.id, state.epoch)
    await until_so(lambda: not tasks._running, "the fan-out has ended")
    assert happened == ([PublishRefused(channel.id, state.epoch)] if adopted_meanwhile else [])
    assert await store.outbox.waiting_users() == ([] if adopted_meanwhile else [keys.user_id(ALICE)])


NEW = "https://example.net/feed"


class Owner:
    """The owner of all channels, with the events that its protocol receives."""

    def __init__(self, store: Store) -> None:
        self.happened: list[Event] = []
        self.tasks = BackgroundTasks()
        self.channels = ChannelOwner(
            US,
            store,
            clock=SystemClock(),
            on_events=self._note,
            tasks=self.tasks,
            contents=store_only_lookup(store),
            fan_out=FanOut(store, 3),
            registrar=DirectoryRegistrar(store, SystemClock(), 3),
            read_article=no_article,
        )
        self.channels.registry.on_ring_changed(RingView(1, (NodeInfo(US, 1, "", 0.0),)))

    async def _note(self, *events: Event) -> None:
        self.happened += events

    async def settle(self) -> list[Event]:
        """Wait for background tasks; return the events since the last call."""
        await until_so(lambda: not self.tasks._running, "the background work has ended")
        happened, self.happened = self.happened, []
        return happened


async def tell(owner: Owner, channel: Channel, notice: Notice) -> None:
    """Publish a notice as the protocol does."""
    await owner.channels.take_ownership([channel.id])
    (adopted,) = await owner.settle()
    assert isinstance(adopted, OwnershipTaken)
    told = Delta(channel.id, adopted.version, 0, 2_000.0, (), notice=notice)
    await owner.channels.publish(Publish(Candidate(told, Validators(), b""), adopted.epoch, adopted.updates))


async def test_a_distant_change_of_the_ring_causes_no_full_listing(store: Store) -> None:
    owner, ids = Owner(store), joined_ids(64)
    us = max(node for node in ids if node < US)
    near = max(node for node in ids if node < us)
    rings = [[US, *ids], [US, *ids[1:]], [US, *(node for node in ids[1:] if node not in {us, near})]]
    listings = []
    for version, nodes in enumerate(rings, 2):
        owner.channels.registry.on_ring_changed(ring(nodes, version))
        await owner.channels.registry.list_owned(ListOwnedChannels(float(version)))
        listings.append(ChannelsListed(float(version), ()) in await owner.settle())
    assert listings == [True, False, True]


async def test_a_new_owner_loads_the_pauses_of_sites(store: Store) -> None:
    owner, now_s = Owner(store), SystemClock().wall_s()
    channels = [await make_channel(store, f"https://{host}/feed") for host in ("a.example.org", "example.net")]
    await store.request_budgets.pause_site("example.org", 600.0)
    await owner.channels.take_ownership([channel.id for channel in channels])
    taken = {event.channel: event.limits for event in await owner.settle() if isinstance(event, OwnershipTaken)}
    paused, other = (taken[channel.id] for channel in channels)
    assert paused.paused_until_s == pytest.approx(now_s + 600, abs=30)
    assert other == NO_LIMITS


async def test_a_notice_is_sent_and_keeps_the_content(store: Store) -> None:
    owner, channel = Owner(store), await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await tell(owner, channel, Notice("dead", "It is gone."))
    await owner.settle()
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert (state.channel.condition, state.validators) == ("dead", SNAPSHOT.validators)
    assert await store.outbox.waiting_users() == [keys.user_id(ALICE)]


async def test_the_owner_of_a_moved_channel_moves_subscribers_and_releases_it(store: Store) -> None:
    owner, channel = Owner(store), await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    await tell(owner, channel, Notice("moved", NEW))
    assert await owner.settle() == [PublishRefused(channel.id)]
    await owner.channels.take_ownership([channel.id])
    assert await owner.settle() == [MessageReceived("", ChannelRemoved(channel.id))]
    assert [held.channel for held in await store.subscriptions.of_user(ALICE)] == [channel_id(NEW)]


async def test_a_move_is_published_once_despite_concurrent_versions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, channel = Owner(store), await make_channel(store)
    others: list[CoronetError] = [LeaseLost("another owner"), StaleVersion("another version", current=2)]
    publish = store.channels.publish

    async def outrun(*told: Any, **how: Any) -> Delta:
        if others:
            raise others.pop()
        return await publish(*told, **how)

    monkeypatch.setattr(store.channels, "publish", outrun)
    for _ in range(2):
        assert await owner.channels.move(channel.id, NEW)
    assert PublishRefused(channel.id) in await owner.settle()
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert (state.channel.moved_to, state.channel.version) == (channel_id(NEW), 2)
    assert not await owner.channels.move(channel.id, "https://example.com/elsewhere")
    assert not await owner.channels.move("f" * 40, NEW)


async def test_an_interrupted_move_is_repeated_until_complete(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even without subscribers, because the successor waits for the end of the move."""
    owner, channel = Owner(store), await make_channel(store)
    await tell(owner, channel, Notice("moved", NEW))
    await owner.settle()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "finish_joining", away)
        await owner.channels.take_ownership([channel.id])
        assert await owner.settle() == [MessageReceived("", ChannelRemoved(channel.id))]
    await owner.channels.registry.list_owned(ListOwnedChannels(1.0))
    *parts, end = await owner.settle()
    listed = [each for part in parts if isinstance(part, ChannelsListed) for each in part.channels]
    assert ListedChannel(channel.id, 0, listed=True) in listed
    assert end == ChannelsListed(1.0, ())
    await owner.channels.take_ownership([channel.id])
    await owner.settle()
    assert await store.redis.call("EXISTS", keys.incoming_moves(channel_id(NEW))) == 0


async def test_only_the_latest_request_during_a_listing_is_answered_after_it(store: Store) -> None:
    owner = Owner(store)
    await asyncio.gather(
        *(owner.channels.registry.list_owned(ListOwnedChannels(asked_s)) for asked_s in (1.0, 2.0, 3.0))
    )
    assert await owner.settle() == [ChannelsListed(1.0, ())], "nothing has changed between the two listings"


async def test_an_interrupted_listing_is_incomplete_and_the_next_one_complete(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(store)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "ids_in_buckets", away)
        with pytest.raises(StoreUnavailable):
            await owner.channels.registry.list_owned(ListOwnedChannels(1.0))
    await owner.channels.registry.list_owned(ListOwnedChannels(2.0))
    assert await owner.settle() == [ChannelsListed(2.0, ())]


async def test_a_listing_after_the_first_contains_only_channels_that_have_changed(store: Store) -> None:
    owner = Owner(store)
    channels = [await make_channel(store, f"https://example.org/{number}", listed=True) for number in range(3)]
    await owner.channels.registry.list_owned(ListOwnedChannels(1.0))
    await owner.settle()

    async def changed(requested_s: float) -> list[Event]:
        await owner.channels.registry.list_owned(ListOwnedChannels(requested_s))
        return await owner.settle()

    assert await changed(2.0) == []
    await store.subscriptions.subscribe("alice@localhost", channels[1].id)
    assert await changed(3.0) == [ChannelsChanged(3.0, (ListedChannel(channels[1].id, 1),))]
    await store.subscriptions.unsubscribe("alice@localhost", channels[1].id)
    await store.channels.set_listed(channels[1].id, listed=False)
    assert await changed(4.0) == [ChannelsChanged(4.0, (ListedChannel(channels[1].id, 0),))]
    new = await make_channel(store, "https://example.org/new", listed=True)
    assert await changed(5.0) == [ChannelsChanged(5.0, (ListedChannel(new.id, 0, listed=True),))]
    assert await changed(6.0) == []


async def test_all_channels_are_listed_again_if_changes_were_removed_or_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_changes, "MAX_CHANGED_CHANNELS", 2)
    owner = Owner(store)
    await owner.channels.registry.list_owned(ListOwnedChannels(1.0))
    for number in range(3):
        await make_channel(store, f"https://example.org/{number}", listed=True)
    await owner.settle()
    await owner.channels.registry.list_owned(ListOwnedChannels(2.0))
    *parts, end = await owner.settle()
    assert sum(len(part.channels) for part in parts if isinstance(part, ChannelsListed)) == 3
    assert end == ChannelsListed(2.0, ())
    await store.redis.call("DEL", keys.REGISTRY_CHANGES, keys.REGISTRY_CHANGE_NUMBERS)
    await owner.channels.registry.list_owned(ListOwnedChannels(3.0))
    assert (await owner.settle())[-1] == ChannelsListed(3.0, ())
