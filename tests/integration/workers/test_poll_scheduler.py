"""The poll scheduler: due polls begin once, stopped ones do not, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf

import pytest
import pytest_asyncio

from service.asyncio_tasks import BackgroundTasks
from service.corona.events import Event, StartPolling, UpdateBase
from service.corona.messages import Candidate, VersionAnnouncement, VersionBase
from service.corona.polling_schedule import PollingSchedule
from service.errors import StoreUnavailable
from service.feeds.sandbox.protocol import Document
from service.model import ChannelId, Delta, NodeId, PollResult, Validators
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.channels.websub_store import Push
from tests.support.channels import make_channel, publish
from tests.support.waiting import until_so
from workers.polling.poll_scheduler import PollScheduler
from workers.polling.poll_state import DetectedUpdate, PollState
from workers.polling.poller import Poller, PollOutcome

US = "a" * 40
INTERVAL_S = 100.0


def every_interval(cid: ChannelId) -> StartPolling:
    """An assignment of a channel to one node, at times that depend on the channel."""
    return StartPolling(cid, 0, PollingSchedule(int(cid[:2], 16) / 256 * INTERVAL_S, INTERVAL_S, 1))


def _state(polling: PollScheduler, cid: ChannelId) -> PollState:
    state = polling._channels[cid].poll_state
    assert state is not None
    return state


async def start_loaded(polling: PollScheduler, *phases: StartPolling) -> None:
    """Start polling, and load the bases."""
    for phase in phases:
        polling.start_polling(phase)
    await polling._load([phase.channel for phase in phases])


class BlockingPoller(Poller):
    """Records polls, each of which lasts until it is released."""

    def __init__(self) -> None:
        self.begun: list[ChannelId] = []
        self.release = asyncio.Event()
        self.asked: list[ChannelId] = []
        self.granted = asyncio.Event()
        self.granted.set()
        self.before_s = inf

    async def acquire_poll(self, state: PollState) -> None:
        """Return once ``granted`` is set."""
        self.asked.append(state.channel.id)
        await self.granted.wait()

    async def poll(self, state: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:
        self.begun.append(state.channel.id)
        self.before_s = before_s
        await self.release.wait()
        return PollOutcome(PollResult(node, 0.0, "unchanged"))

    def on_versioned(self, before: PollState, after: PollState, candidate: Candidate) -> None:
        """Do nothing: polls of this poller compare nothing."""

    async def compare_again(self, state: PollState, update: DetectedUpdate) -> DetectedUpdate | None:
        raise StoreUnavailable(f"{state.channel.url} and {len(update.documents)} documents have to wait.")


class SetClock:
    """A clock that a test sets."""

    now_s = 1_000.0
    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s + self.ahead_s


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def poller() -> BlockingPoller:
    return BlockingPoller()


@pytest_asyncio.fixture
async def polling(store: Store, clock: SetClock, poller: BlockingPoller) -> AsyncIterator[PollScheduler]:
    async def nobody(*_: Event) -> None:
        return

    def no_hub(*_: object) -> None:
        return

    tasks = BackgroundTasks()
    yield PollScheduler(US, store, poller, clock=clock, on_events=nobody, on_hubs_found=no_hub, tasks=tasks)
    await tasks.cancel()


Load = Callable[[Sequence[ChannelId]], Awaitable[list[ChannelState | None]]]


def delayed(load: Load, asked: asyncio.Event, until_set: asyncio.Event) -> Load:
    """Return a function that loads the same from the store, but returns only when ``until_set`` is set."""

    async def late(cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        asked.set()
        await until_set.wait()
        return await load(cids)

    return late


@asynccontextmanager
async def running(polling: PollScheduler, clock: SetClock) -> AsyncIterator[Callable[[], None]]:
    """Run the scheduler; yield a function that advances the clock by an interval."""

    def pass_interval() -> None:
        clock.now_s += INTERVAL_S
        polling._queue_changed.set()

    keeping = asyncio.create_task(polling.run())
    try:
        yield pass_interval
    finally:
        keeping.cancel()


async def test_a_channel_stopped_while_it_is_loaded_is_not_polled(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    asked, loaded = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(store.channels, "states", delayed(store.channels.states, asked, loaded))
    polling.start_polling(every_interval(channel.id))
    async with running(polling, clock) as pass_interval:
        pass_interval()
        await asked.wait()
        polling.stop_polling(channel.id)
        loaded.set()
        await until_so(lambda: not polling._tasks._running, "it is loaded")
    assert (poller.asked, polling._queue.due_s(channel.id), polling._channels) == ([], inf, {})


async def test_a_missing_channel_is_polled_once_it_exists(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await store.remove_channel(channel.id)
    polling.start_polling(every_interval(channel.id))
    async with running(polling, clock) as pass_interval:
        pass_interval()
        await until_so(lambda: polling._queue.due_s(channel.id) > clock.now_s, "its turn has passed")
        await until_so(lambda: not polling._tasks._running, "it was looked for")
        assert poller.asked == []
        await make_channel(store)
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")
    assert _state(polling, channel.id).channel.url == channel.url


async def test_a_channel_that_could_not_be_loaded_is_polled_at_its_next_turn(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    refused = asyncio.Event()

    async def away(_: Sequence[ChannelId]) -> list[ChannelState | None]:
        refused.set()
        raise StoreUnavailable("away")

    polling.start_polling(every_interval(channel.id))
    async with running(polling, clock) as pass_interval:
        with monkeypatch.context() as patched:
            patched.setattr(store.channels, "states", away)
            pass_interval()
            await refused.wait()
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")


async def test_a_channel_stopped_while_it_waits_for_budgets_is_not_polled(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await start_loaded(polling, every_interval(channel.id))
    poller.granted.clear()
    clock.now_s += INTERVAL_S
    keeping = asyncio.create_task(polling.run())
    await until_so(lambda: poller.asked, "the budgets are asked")
    polling.stop_polling(channel.id)
    poller.granted.set()
    await until_so(lambda: not polling._tasks._running, "the wait is over")
    assert poller.begun == []
    keeping.cancel()


async def test_a_poll_must_begin_before_the_next_one_of_its_polling_set(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    due_s = clock.now_s + INTERVAL_S
    await start_loaded(polling, StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S / 5, 5)))
    async with running(polling, clock) as pass_interval:
        pass_interval()
        await until_so(lambda: poller.begun, "it is polled")
    assert poller.before_s == pytest.approx(due_s + INTERVAL_S / 5, abs=0.1)


async def test_a_failed_comparison_is_repeated_at_the_next_poll(store: Store, polling: PollScheduler) -> None:
    """By then, the publisher may no longer list the entry."""
    channel = await make_channel(store)
    await start_loaded(polling, every_interval(channel.id))
    document = Document(b"news", channel.url, {})
    polling._record_update(DetectedUpdate((document,), Candidate(Delta(channel.id, 1, 0, 1.0, ()), Validators(), b"")))
    await polling.update_bases([UpdateBase(channel.id)])
    await publish(store, channel, "from another node")
    await polling.update_bases([UpdateBase(channel.id)])
    await until_so(
        lambda: _state(polling, channel.id).unversioned == (document,), "the document waits for the next poll"
    )


BASE = VersionBase(Validators('"2"', body_sha256="2" * 64), 1.0, 7)


async def test_a_version_announced_with_its_base_is_not_loaded(
    store: Store, polling: PollScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    await start_loaded(polling, every_interval(channel.id))
    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "states", delayed(store.channels.states, asyncio.Event(), asyncio.Event()))
        await polling.update_bases([UpdateBase(channel.id, VersionAnnouncement(channel.id, 2, BASE))])
        state = _state(polling, channel.id)
        assert (state.channel.version, state.validators, state.subscribers) == (2, BASE.validators, 7)
        await polling.update_bases(
            [UpdateBase(channel.id, VersionAnnouncement(channel.id, 1, VersionBase(Validators(), 0.0, 0)))]
        )
        assert _state(polling, channel.id) == state


async def test_a_version_without_a_base_is_loaded_before_the_next_poll(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    await start_loaded(polling, every_interval(channel.id))
    await publish(store, channel, "from another node")
    await polling.update_bases([UpdateBase(channel.id)])
    assert _state(polling, channel.id).channel.version == 1
    clock.now_s += INTERVAL_S
    keeping = asyncio.create_task(polling.run())
    await until_so(lambda: poller.begun, "it is polled")
    assert _state(polling, channel.id).channel.version == 2
    keeping.cancel()


async def test_only_the_node_that_detected_a_version_skips_the_comparison(store: Store, polling: PollScheduler) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in (1, 2)]
    await start_loaded(polling, *(every_interval(channel.id) for channel in channels))
    document = Document(b"news", channels[0].url, {})
    for channel, detected_s in zip(channels, (BASE.detected_s, 0.5), strict=True):
        candidate = Candidate(Delta(channel.id, 1, 0, detected_s, ()), BASE.validators, b"")
        polling._record_update(DetectedUpdate((document,), candidate))
    await polling.update_bases(
        [UpdateBase(channel.id, VersionAnnouncement(channel.id, 2, BASE)) for channel in channels]
    )
    await until_so(lambda: _state(polling, channels[1].id).unversioned, "the other update waits for the next poll")
    assert _state(polling, channels[0].id).unversioned == ()


async def test_a_push_does_not_wake_a_dormant_channel(store: Store, polling: PollScheduler) -> None:
    """Otherwise entries listed meanwhile would be sent as new."""
    channel = await make_channel(store)
    await store.channels.mark_dormant(channel.id)
    await store.websub.queue_push(channel.id, Push(b"news", "application/rss+xml"))
    await polling.pushes.process(channel.id)
    assert await store.websub.take_pushes(channel.id) == []


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_a_jump_of_the_stores_clock_postpones_no_poll(
    store: Store, polling: PollScheduler, clock: SetClock, jump_s: float
) -> None:
    channel = await make_channel(store)
    clock.ahead_s = 1e9
    polling.on_clock_set()
    await start_loaded(polling, every_interval(channel.id))
    clock.ahead_s += jump_s
    polling.on_clock_set()
    assert 0 < polling._queue.due_s(channel.id) - clock.wall_s() <= INTERVAL_S


async def test_a_poll_that_takes_longer_than_its_interval_does_not_overlap_itself(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in (1, 2)]
    await start_loaded(polling, every_interval(channels[0].id))
    keeping = asyncio.create_task(polling.run())
    for _ in range(3):
        clock.now_s += INTERVAL_S
        polling._queue_changed.set()
        await until_so(lambda: polling._queue.due_s(channels[0].id) > clock.now_s, "planned anew")
    await start_loaded(polling, every_interval(channels[1].id))
    clock.now_s += INTERVAL_S
    polling._queue_changed.set()
    await until_so(lambda: channels[1].id in poller.begun, "the other channel is polled")
    keeping.cancel()
    assert sorted(poller.begun) == sorted(channel.id for channel in channels)


async def test_a_new_schedule_does_not_repeat_a_poll_begun_early(
    store: Store, polling: PollScheduler, poller: BlockingPoller, clock: SetClock
) -> None:
    channel = await make_channel(store)
    due_s = clock.now_s + INTERVAL_S
    polling.start_polling(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S, 1)))
    clock.now_s = due_s - 0.05
    keeping = asyncio.create_task(polling.run())
    await until_so(lambda: poller.begun, "it is polled")
    polling.start_polling(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S / 4, 2)))
    assert polling._queue.due_s(channel.id) == due_s + INTERVAL_S / 2
    keeping.cancel()


async def test_a_new_schedule_does_not_drop_an_overdue_poll(
    store: Store, polling: PollScheduler, clock: SetClock
) -> None:
    channel = await make_channel(store)
    due_s = clock.now_s + INTERVAL_S
    polling.start_polling(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S, 1)))
    clock.now_s = due_s + 0.3  # the worker was too busy to begin the poll
    polling.start_polling(StartPolling(channel.id, 0, PollingSchedule(due_s, INTERVAL_S / 4, 2)))
    assert polling._queue.due_s(channel.id) == due_s


async def test_the_subscriber_count_is_that_of_the_assignment(store: Store, polling: PollScheduler) -> None:
    channel = await make_channel(store)
    phase = every_interval(channel.id)
    await start_loaded(polling, StartPolling(channel.id, 0, phase.schedule, 3))
    assert _state(polling, channel.id).subscribers == 3
    polling.start_polling(StartPolling(channel.id, 0, phase.schedule, 4))
    assert _state(polling, channel.id).subscribers == 4


async def test_a_new_schedule_moves_the_next_poll(store: Store, polling: PollScheduler) -> None:
    channel = await make_channel(store)
    for first_s in (1_100.0, 1_050.0, 1_200.0):
        polling.start_polling(StartPolling(channel.id, 0, PollingSchedule(first_s, 300.0, 1)))
        assert polling._queue.due_s(channel.id) == first_s
