"""WebSub with a node, the console and a real hub: from a feed that names a hub to pushes at the channel's owner."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest_asyncio

from service.feeds.websub_protocol import HubState, HubTopic, next_request_s, record_request
from service.model import Channel
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from service.settings import Settings
from service.store import Store
from service.store.channels.websub_store import Push
from tests.support.channels import make_channel
from tests.support.console import console
from tests.support.websub_hub import Hub
from workers.polling.politeness import Politeness
from workers.polling.websub_subscriber import HubSubscriber

TOPIC = "https://example.org/feed"


class LateClock:
    """A clock that is ahead by ``ahead_s``."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_s

    def wall_s(self) -> float:
        return time.time() + self.ahead_s


@dataclass
class Node:
    """The only node of a ring, and a channel that it owns."""

    id: str
    hubs: HubSubscriber
    store: Store
    channel: Channel
    clock: LateClock

    async def report_hub(self, hub: Hub) -> None:
        """Report that the channel's document names this hub."""
        await self.hubs.on_hubs_found(self.channel.id, (hub.url,), TOPIC)
        await hub.settled()

    async def renew(self, hub: Hub, *, ahead_s: float = 0.0) -> None:
        """Renew subscriptions ``ahead_s`` later."""
        self.clock.ahead_s = ahead_s
        await self.hubs.renew(await self.store.ring.view(), self.id)
        await hub.settled()

    async def state(self) -> HubState:
        state = await self.store.websub.get(self.channel.id)
        assert state is not None
        return state


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[Hub]:
    async with Hub().open() as running:
        yield running


@asynccontextmanager
async def node(store: Store, *, allow_private: bool = True, public: bool = True) -> AsyncIterator[Node]:
    """A node whose console has a public URL if ``public``."""
    me = await store.ring.join("w1", "", 60.0, lambda _: "a" * 40)
    channel = await make_channel(store, TOPIC, listed=True)
    politeness, clock = Politeness(store.request_budgets, Settings()), LateClock()
    fetcher = Fetcher("Coronet/test (+x)", AddressGuard(allow_private=allow_private), total_s=5.0)
    async with fetcher, console(store) as (url, _):
        hubs = HubSubscriber(store, fetcher, politeness, clock, f"{url}/" if public else "")
        yield Node(me.id, hubs, store, channel, clock)


@pytest_asyncio.fixture
async def one(store: Store) -> AsyncIterator[Node]:
    """A node with the usual settings."""
    async with node(store) as made:
        yield made


async def test_a_push_of_a_hub_reaches_the_channels_owner(one: Node, hub: Hub, store: Store) -> None:
    await one.report_hub(hub)
    assert (await one.state()).status == "verified"
    assert await hub.push(b"<rss/>") == [202]
    letters, _ = await store.node_inboxes.read(one.id, "0")
    assert [(letter.kind, letter.payload.decode()) for letter in letters] == [("push", one.channel.id)]
    assert await store.websub.take_pushes(one.channel.id) == [Push(b"<rss/>", "application/rss+xml")]


async def test_a_push_without_the_secret_is_dropped(one: Node, hub: Hub, store: Store) -> None:
    await one.report_hub(hub)
    assert await hub.push(b"<rss>lies</rss>", secret="a guess") == [202]
    assert await store.websub.take_pushes(one.channel.id) == []


async def test_repeated_reports_of_a_hub_cause_one_subscription_request(one: Node, hub: Hub) -> None:
    for _ in range(3):
        await one.report_hub(hub)
        await one.renew(hub)
    assert [form["hub.mode"] for form in hub.asked] == ["subscribe"]


async def test_a_lease_is_renewed_before_it_ends(one: Node, hub: Hub) -> None:
    await one.report_hub(hub)
    await one.renew(hub, ahead_s=0.75 * hub.lease_s)
    assert len(hub.asked) == 1
    await one.renew(hub, ahead_s=0.85 * hub.lease_s)
    assert hub.asked == [hub.asked[0]] * 2, "the same callback, secret and topic"
    assert (await one.state()).status == "verified"


async def test_a_request_that_was_recorded_but_not_sent_is_repeated(one: Node, hub: Hub, store: Store) -> None:
    noted = record_request(HubState(HubTopic(hub.url, TOPIC), "a-secret", "a-token"), one.clock.wall_s())
    await store.websub.compare_and_set(one.channel.id, None, noted)
    await one.renew(hub, ahead_s=601.0)
    assert (await one.state()).status == "verified"


async def test_a_hub_that_denies_is_not_requested_for_a_day(one: Node, hub: Hub) -> None:
    hub.denies = True
    await one.report_hub(hub)
    assert (await one.state()).status == "refused"
    for hours, times in ((1, 1), (23, 1), (25, 2)):
        await one.renew(hub, ahead_s=hours * 3_600.0)
        assert len(hub.asked) == times


async def test_a_dead_hub_is_retried_with_back_off_until_it_is_back(one: Node) -> None:
    hub = Hub()
    async with hub.open():
        pass
    await one.report_hub(hub)
    for failures in (1, 2, 3):
        state = await one.state()
        assert (state.status, state.failures) == ("pending", failures)
        await one.renew(hub, ahead_s=next_request_s(state) - time.time() + 1.0)
    state = await one.state()
    assert next_request_s(state) - state.since_s == 4_800.0
    async with hub.open(urlsplit(hub.url).port or 0):
        await one.renew(hub, ahead_s=next_request_s(state) - time.time() + 1.0)
    assert (await one.state()).status == "verified"


async def test_a_dead_hub_is_retried_for_one_channel_at_a_time(one: Node, store: Store) -> None:
    hub = Hub(silent=True)
    channels = [await make_channel(store, f"{TOPIC}/{number}", listed=True) for number in range(4)]
    async with hub.open():
        for channel in channels:
            await one.hubs.on_hubs_found(channel.id, (hub.url,), channel.url)
    await one.renew(hub, ahead_s=700.0)
    states = await store.websub.get_many([channel.id for channel in channels])
    assert sorted(state.failures for state in states if state) == [1, 1, 1, 2]


async def test_a_replaced_hub_is_unsubscribed_before_the_next_one(one: Node, hub: Hub) -> None:
    async with Hub().open() as other:
        await one.report_hub(hub)
        await one.report_hub(other)
        await one.renew(hub, ahead_s=601.0)
        assert hub.subscribed == {}
        await one.renew(other, ahead_s=601.0)
        assert len(other.subscribed) == 1
    assert (await one.state()).target.hub == other.url


async def test_an_unresponsive_hub_is_removed_after_unsubscribe_attempts(one: Node, hub: Hub, store: Store) -> None:
    await one.report_hub(hub)
    await one.hubs.on_hubs_found(one.channel.id, (), "")
    hub.silent = True
    while (state := await store.websub.get(one.channel.id)) is not None:
        await one.renew(hub, ahead_s=next_request_s(state) - time.time() + 1.0)
    assert [form["hub.mode"] for form in hub.asked] == ["subscribe", *["unsubscribe"] * 3]


async def test_the_hub_of_a_deleted_channel_is_unsubscribed_at_renewal(one: Node, hub: Hub, store: Store) -> None:
    await one.report_hub(hub)
    await store.remove_channel(one.channel.id)
    await one.renew(hub, ahead_s=0.85 * hub.lease_s)
    assert [form["hub.mode"] for form in hub.asked] == ["subscribe", "unsubscribe"]
    await one.renew(hub)
    assert await store.websub.get(one.channel.id) is None
    assert await store.websub.ids_in_buckets([one.channel.id[:2]]) == []


async def test_a_hub_at_a_private_address_is_not_contacted(store: Store, hub: Hub) -> None:
    async with node(store, allow_private=False) as guarded:
        await guarded.report_hub(hub)
        assert hub.asked == []
        assert (await guarded.state()).failures == 1


async def test_without_a_public_url_no_hub_is_contacted(store: Store, hub: Hub) -> None:
    async with node(store, public=False) as hidden:
        await hidden.report_hub(hub)
        await hidden.renew(hub)
        assert hub.asked == []
        assert await store.websub.get(hidden.channel.id) is None
