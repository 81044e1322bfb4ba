"""A node's polls: what is planned is polled, once, and what is stopped is not, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf

import pytest
import pytest_asyncio

from service.corona.events import Event, StartPolling, UpdateBase
from service.corona.messages import Candidate, VersionAnnouncement, VersionBase
from service.corona.polling_schedule import PollingSchedule
from service.errors import StoreUnavailable
from service.feeds.sandbox.protocol import Document
from service.model import ChannelId, Delta, NodeId, PollResult, Validators
from service.store import Store
from service.store.channels.channels import ChannelState
from service.store.channels.websub import Push
from tests.support.channels import make_channel, publish
from tests.support.waiting import until_so
from workers.polling.poll_state import DetectedUpdate, PollState
from workers.polling.poller import Poller, PollOutcome
from workers.polling.scheduler import PollScheduler
from workers.tasks import BackgroundTasks

US = "a" * 40
INTERVAL_S = 100.0


def every_interval(cid: ChannelId) -> StartPolling:
    """Polls by one node alone, each channel's at times of its own."""
    return StartPolling(cid, 0, PollingSchedule(int(cid[:2], 16) / 256 * INTERVAL_S, INTERVAL_S, 1))


def _watch(polling: PollScheduler, cid: ChannelId) -> PollState:
    watch = polling._polled[cid].watch
    assert watch is not None
    return watch


async def begun(polling: PollScheduler, *phases: StartPolling) -> None:
    """Start polling, with the channels loaded."""
    for phase in phases:
        polling.start(phase)
    await polling._load([phase.channel for phase in phases])


class HeldPoller(Poller):
    """Counts polls, each of which lasts until it is released."""

    def __init__(self) -> None:
        self.begun: list[ChannelId] = []
        self.release = asyncio.Event()
        self.asked: list[ChannelId] = []
        self.granted = asyncio.Event()
        self.granted.set()
        self.before_s = inf

    async def acquire_poll(self, watch: PollState) -> None:
        """Grant it, unless a test has cleared that."""
        self.asked.append(watch.channel.id)
        await self.granted.wait()

    async def poll(self, watch: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:
        self.begun.append(watch.channel.id)
        self.before_s = before_s
        await self.release.wait()
        return PollOutcome(PollResult(node, 0.0, "unchanged"))

    def versioned(self, before: PollState, after: PollState, candidate: Candidate) -> None:
        """Keep nothing: no poll of this one compares."""

    async def compare_again(self, watch: PollState, find: DetectedUpdate) -> DetectedUpdate | None:
        raise StoreUnavailable(f"{watch.channel.url} and {len(find.documents)} documents have to wait.")


class SetClock:
    """Says what it is told."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def poller() -> HeldPoller:
    return HeldPoller()


@pytest_asyncio.fixture
async def polling(store: Store, clock: SetClock, poller: HeldPoller) -> AsyncIterator[PollScheduler]:
    async def nobody(_: Event) -> None:
        return

    async def no_hub(*_: object) -> None:
        return

    tasks = BackgroundTasks()
    yield PollScheduler(US, store, poller, clock=clock, happened=nobody, hubs_named=no_hub, tasks=tasks)
    await tasks.cancel()


Load = Callable[[Sequence[ChannelId]], Awaitable[list[ChannelState | None]]]


def held(load: Load, asked: asyncio.Event, until_set: asyncio.Event) -> Load:
    """Ask the store the same, with an answer that comes only when the event is set."""

    async def late(cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        asked.set()
        await until_set.wait()
        return await load(cids)

    return late


@asynccontextmanager
async def agenda_kept(polling: PollScheduler, clock: SetClock) -> AsyncIterator[Callable[[], None]]:
    """Have polls begin when they are due; yields what lets an interval pass."""

    def pass_interval() -> None:
        clock.now_s += INTERVAL_S
        polling._agenda_changed.set()

    keeping = asyncio.create_task(polling.keep_agenda())
    try:
        yield pass_interval
    finally:
        keeping.cancel()


async def test_what_is_stopped_while_it_is_loaded_stays_stopped(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    asked, loaded = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(store.channels, "states", held(store.channels.states, asked, loaded))
    polling.start(every_interval(channel.id))
    async with agenda_kept(polling, clock) as pass_interval:
        pass_interval()
        await asked.wait()
        polling.stop(channel.id)
        loaded.set()
        await until_so(lambda: not polling._tasks._running, "it is loaded")
    assert (poller.asked, polling._agenda.planned_s(channel.id), polling._polled) == ([], inf, {})


async def test_a_channel_that_did_not_exist_is_polled_as_soon_as_it_does(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await store.remove_channel(channel.id)
    polling.start(every_interval(channel.id))
    async with agenda_kept(polling, clock) as pass_interval:
        pass_interval()
        await until_so(lambda: polling._agenda.planned_s(channel.id) > clock.now_s, "its turn has passed")
        await until_so(lambda: not polling._tasks._running, "it was looked for")
        assert poller.asked == []
        await make_channel(store)
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")
    assert _watch(polling, channel.id).channel.url == channel.url


async def test_what_the_store_did_not_let_us_poll_is_polled_at_its_next_turn(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    refused = asyncio.Event()

    async def away(_: Sequence[ChannelId]) -> list[ChannelState | None]:
        refused.set()
        raise StoreUnavailable("away")

    polling.start(every_interval(channel.id))
    async with agenda_kept(polling, clock) as pass_interval:
        with monkeypatch.context() as patched:
            patched.setattr(store.channels, "states", away)
            pass_interval()
            await refused.wait()
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")


async def test_what_is_stopped_while_its_poll_waits_for_the_budgets_is_not_polled(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await begun(polling, every_interval(channel.id))
    poller.granted.clear()
    clock.now_s += INTERVAL_S
    keeping = asyncio.create_task(polling.keep_agenda())
    await until_so(lambda: poller.asked, "the budgets are asked")
    polling.stop(channel.id)
    poller.granted.set()
    await until_so(lambda: not polling._tasks._running, "the wait is over")
    assert poller.begun == []
    keeping.cancel()


async def test_a_poll_is_to_begin_before_the_next_one_of_its_set(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    due_s = clock.now_s + INTERVAL_S
    await begun(polling, StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S / 5, 5)))
    async with agenda_kept(polling, clock) as pass_interval:
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")
    assert poller.before_s == pytest.approx(due_s + INTERVAL_S / 5, abs=0.1)


async def test_what_cannot_be_compared_again_now_is_compared_at_the_next_poll(
    store: Store, polling: PollScheduler
) -> None:
    """The publisher may list it no more by then."""
    channel = await make_channel(store)
    await begun(polling, every_interval(channel.id))
    document = Document(b"news", channel.url, {})
    await polling._offer(DetectedUpdate((document,), Candidate(Delta(channel.id, 1, 0, 1.0, ()), Validators(), b"")))
    await polling.refresh([UpdateBase(channel.id)])
    await publish(store, channel, "from another node")
    await polling.refresh([UpdateBase(channel.id)])
    await until_so(lambda: _watch(polling, channel.id).unversioned == (document,), "it waits for the next poll")


BASE = VersionBase(Validators('"2"', body_sha256="2" * 64), 1.0, 7)


async def test_a_version_that_was_told_with_its_base_is_not_loaded(
    store: Store, polling: PollScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    await begun(polling, every_interval(channel.id))
    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "states", held(store.channels.states, asyncio.Event(), asyncio.Event()))
        await polling.refresh([UpdateBase(channel.id, VersionAnnouncement(channel.id, 2, BASE))])
        watch = _watch(polling, channel.id)
        assert (watch.channel.version, watch.validators, watch.subscribers) == (2, BASE.validators, 7)
        await polling.refresh(
            [UpdateBase(channel.id, VersionAnnouncement(channel.id, 1, VersionBase(Validators(), 0.0, 0)))]
        )
        assert _watch(polling, channel.id) == watch


async def test_a_version_without_a_base_is_loaded_before_the_next_poll(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await begun(polling, every_interval(channel.id))
    await publish(store, channel, "from another node")
    await polling.refresh([UpdateBase(channel.id)])
    assert _watch(polling, channel.id).channel.version == 1
    clock.now_s += INTERVAL_S
    keeping = asyncio.create_task(polling.keep_agenda())
    await until_so(lambda: poller.begun, "it is polled")
    assert _watch(polling, channel.id).channel.version == 2
    keeping.cancel()


async def test_only_who_found_a_version_has_nothing_left_to_compare_with_it(
    store: Store, polling: PollScheduler
) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in (1, 2)]
    await begun(polling, *(every_interval(channel.id) for channel in channels))
    document = Document(b"news", channels[0].url, {})
    for channel, detected_s in zip(channels, (BASE.detected_s, 0.5), strict=True):
        candidate = Candidate(Delta(channel.id, 1, 0, detected_s, ()), BASE.validators, b"")
        await polling._offer(DetectedUpdate((document,), candidate))
    await polling.refresh([UpdateBase(channel.id, VersionAnnouncement(channel.id, 2, BASE)) for channel in channels])
    await until_so(lambda: _watch(polling, channels[1].id).unversioned, "the other's find waits for the next poll")
    assert _watch(polling, channels[0].id).unversioned == ()


async def test_what_is_pushed_for_a_dormant_channel_does_not_wake_it_up(store: Store, polling: PollScheduler) -> None:
    """Or what else it listed meanwhile would be told as news."""
    channel = await make_channel(store)
    await store.channels.mark_dormant(channel.id)
    await store.websub.queue_push(channel.id, Push(b"news", "application/rss+xml"))
    await polling.take_in(channel.id)
    assert await store.websub.take_pushes(channel.id) == []


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_a_jump_of_the_stores_clock_puts_no_poll_off(
    store: Store, polling: PollScheduler, clock: SetClock, jump_s: float
) -> None:
    channel = await make_channel(store)
    polling.set_fleet_time(1e9, clock.now_s)
    await begun(polling, every_interval(channel.id))
    polling.set_fleet_time(1e9 + jump_s, clock.now_s)
    assert 0 < polling._agenda.planned_s(channel.id) - polling.fleet_s() <= INTERVAL_S


async def test_a_poll_that_takes_longer_than_its_interval_does_not_overlap_itself(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in (1, 2)]
    await begun(polling, every_interval(channels[0].id))
    keeping = asyncio.create_task(polling.keep_agenda())
    for _ in range(3):
        clock.now_s += INTERVAL_S
        polling._agenda_changed.set()
        await until_so(lambda: polling._agenda.planned_s(channels[0].id) > clock.now_s, "planned anew")
    await begun(polling, every_interval(channels[1].id))
    clock.now_s += INTERVAL_S
    polling._agenda_changed.set()
    await until_so(lambda: channels[1].id in poller.begun, "the other channel is polled")
    keeping.cancel()
    assert sorted(poller.begun) == sorted(channel.id for channel in channels)


async def test_another_rota_repeats_no_poll_that_was_begun_ahead_of_its_time(
    store: Store, polling: PollScheduler, poller: HeldPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    due_s = clock.now_s + INTERVAL_S
    polling.start(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S, 1)))
    clock.now_s = due_s - 0.05
    keeping = asyncio.create_task(polling.keep_agenda())
    await until_so(lambda: poller.begun, "it is polled")
    polling.start(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S / 4, 2)))
    assert polling._agenda.planned_s(channel.id) == due_s + INTERVAL_S / 2
    keeping.cancel()


async def test_how_many_subscribe_is_what_the_owner_says(store: Store, polling: PollScheduler) -> None:
    channel = await make_channel(store)
    phase = every_interval(channel.id)
    await begun(polling, StartPolling(channel.id, 0, phase.schedule, 3))
    assert _watch(polling, channel.id).subscribers == 3
    polling.start(StartPolling(channel.id, 0, phase.schedule, 4))
    assert _watch(polling, channel.id).subscribers == 4


async def test_another_rota_brings_the_next_poll_forward_or_puts_it_off(store: Store, polling: PollScheduler) -> None:
    channel = await make_channel(store)
    for first_s in (1_100.0, 1_050.0, 1_200.0):
        polling.start(StartPolling(channel.id, 0, PollingSchedule(first_s, 300.0, 1)))
        assert polling._agenda.planned_s(channel.id) == first_s
