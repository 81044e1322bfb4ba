"""Channels whose polls fail: the production protocol, scheduler and store in virtual time, for a month."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from math import inf

import msgspec
import pytest
import pytest_asyncio

from service.asyncio_tasks import BackgroundTasks
from service.corona.events import (
    ChannelsListed,
    Event,
    ListedChannel,
    ListOwnedChannels,
    MessageReceived,
    OwnershipTaken,
    Publish,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    TakeOwnership,
    Tick,
    VersionPublished,
)
from service.corona.fleet_policy import DEFAULT_POLICY
from service.corona.node_protocol import NodeProtocol
from service.errors import BadStatus, HostNotFound, NotAFeed, StaleVersion
from service.model import Channel, NodeId, PollResult
from service.overlay.ring import RingView
from service.store import Store
from tests.support.channels import make_channel
from tests.support.ring_strategies import ring
from workers.polling.poll_scheduler import PollScheduler
from workers.polling.poll_state import PollState
from workers.polling.poller import Poller, PollOutcome

MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0
TICK_S = 900.0
POLICY = msgspec.structs.replace(DEFAULT_POLICY, maintenance_interval_s=2 * TICK_S)
SUBSCRIBERS = 10
NODES = ("0" * 40, "5" + "0" * 39, "a" + "0" * 39)

Answer = Callable[[float], tuple[str, int]]
"""The outcome and the HTTP status of a poll at a time."""


class VirtualFleet(Poller):
    """Three nodes that poll one channel by their protocol, on a clock that a test advances.

    It is also the poller of the nodes: ``answer`` determines the results of polls, and ``polls_s`` are their times.
    """

    def __init__(self, store: Store, channel: Channel) -> None:
        self.now_s = 1_000_000.0
        self.answer: Answer = lambda _: ("unchanged", 304)
        self.polls_s: list[float] = []
        self.notices: list[tuple[str, float]] = []
        self._store = store
        self._channel = channel
        self._tasks = BackgroundTasks()
        self._nodes = {node: NodeProtocol(node, POLICY) for node in NODES}
        self._scheduled: dict[NodeId, StartPolling] = {}
        self._due_s: dict[NodeId, float] = {}
        self._ticked_s = self.now_s
        self._schedulers = {
            node: PollScheduler(
                node,
                store,
                self,
                clock=self,
                on_events=partial(self._handle, node),
                on_hubs_found=self._ignore_hubs,
                tasks=self._tasks,
            )
            for node in NODES
        }

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    async def acquire_poll(self, state: PollState) -> None:
        """Grant each poll."""

    async def poll(self, state: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:  # noqa: ARG002 - as in the base class
        self.polls_s.append(self.now_s)
        outcome, status = self.answer(self.now_s)
        return PollOutcome(PollResult(node, self.now_s, outcome, status))

    def _ignore_hubs(self, *_: object) -> None:
        return

    async def start(self) -> None:
        """Let the nodes form a ring, own the channel and agree on its polls."""
        view: RingView = ring(list(NODES))
        for node in NODES:
            await self._handle(node, RingChanged(view))
        await self.advance(4 * POLICY.maintenance_interval_s + 4 * TICK_S)

    async def advance(self, for_s: float, tick_s: float = TICK_S) -> None:
        """Make all polls of the next ``for_s`` seconds, and a tick every ``tick_s`` seconds."""
        until_s = self.now_s + for_s
        while True:
            node, due_s = min(self._due_s.items(), key=lambda item: item[1], default=("", inf))
            self.now_s = min(due_s, self._ticked_s + tick_s, until_s)
            if self.now_s >= until_s:
                return
            if self.now_s == due_s:
                scheduled = self._scheduled[node]
                self._due_s[node] = scheduled.schedule.next_poll_s(scheduled.rank, self.now_s)
                await self._schedulers[node].poll_now(self._channel.id)
            else:
                self._ticked_s = self.now_s
                for each in NODES:
                    await self._handle(each, Tick())
                    await self._handle(each, *await self._schedulers[each].health.record())

    async def _handle(self, to: NodeId, *events: Event) -> None:
        waiting = deque((to, event) for event in events)
        while waiting:
            node, event = waiting.popleft()
            for effect in self._nodes[node].handle([event], self.now_s, self.now_s):
                match effect:
                    case Send():
                        waiting.append((effect.node, MessageReceived(node, effect.message)))
                    case StartPolling():
                        self._scheduled[node] = effect
                        self._due_s[node] = effect.schedule.next_poll_s(effect.rank, self.now_s)
                        self._schedulers[node].start_polling(effect)
                    case StopPolling():
                        del self._scheduled[node], self._due_s[node]
                        self._schedulers[node].stop_polling(effect.channel)
                    case ListOwnedChannels():
                        listed = (ListedChannel(self._channel.id, SUBSCRIBERS),)
                        waiting.append((node, ChannelsListed(effect.requested_s, listed)))
                    case TakeOwnership():
                        (state,) = await self._store.channels.adopt([effect.channel], node)
                        assert state is not None
                        waiting.append((node, OwnershipTaken(effect.channel, state.epoch, state.channel.version)))
                    case Publish():
                        waiting.append((node, await self._publish(effect)))

    async def _publish(self, effect: Publish) -> Event:
        delta = effect.candidate.delta
        assert delta.notice is not None
        try:
            stored = await self._store.channels.publish(delta, None, effect.epoch, silent=False)
        except StaleVersion as error:
            return VersionPublished(delta.channel, error.current)
        if not self.notices or self.notices[-1][0] != delta.notice.kind:
            self.notices.append((delta.notice.kind, self.now_s))
        return VersionPublished(delta.channel, stored.version)

    async def stop(self) -> None:
        await self._tasks.cancel()


@pytest_asyncio.fixture
async def fleet(store: Store) -> AsyncIterator[VirtualFleet]:
    fleet = VirtualFleet(store, await make_channel(store))
    await fleet.start()
    yield fleet
    await fleet.stop()


def _gaps_s(polls_s: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(polls_s)]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(HostNotFound.code, 0), (BadStatus.code, 404), (BadStatus.code, 503), (NotAFeed.code, 200)],
)
async def test_a_channel_that_fails_for_a_month_causes_few_requests(
    fleet: VirtualFleet, outcome: str, status: int
) -> None:
    await fleet.advance(3 * HOUR_S)
    usual_s = _gaps_s(fleet.polls_s)[-1]
    fleet.polls_s.clear()
    fleet.answer = lambda _: (outcome, status)
    began_s = fleet.now_s
    await fleet.advance(30 * DAY_S, tick_s=HOUR_S)
    assert 30 <= len(fleet.polls_s) <= 60
    await fleet.advance(2 * DAY_S, tick_s=HOUR_S)
    assert max(_gaps_s(fleet.polls_s)) <= 1.02 * DAY_S
    kinds = [kind for kind, at_s in fleet.notices if at_s - began_s >= 30 * DAY_S]
    assert [kind for kind, _ in fleet.notices] == kinds == ([] if status == 503 else ["dead"])

    fleet.answer = lambda _: ("unchanged", 304)
    fleet.polls_s.clear()
    await fleet.advance(DAY_S + 3 * HOUR_S)
    first_s, second_s = fleet.polls_s[:2]
    # The scale of a fleet of one channel follows at the next tick.
    assert second_s - first_s <= 2.02 * usual_s + TICK_S
    assert _gaps_s(fleet.polls_s)[5] == pytest.approx(usual_s, rel=0.02)
    assert [kind for kind, _ in fleet.notices] == ([] if status == 503 else ["dead", "back"])


async def test_a_gone_channel_is_reported_dead_within_two_days(fleet: VirtualFleet) -> None:
    fleet.answer = lambda _: (BadStatus.code, 410)
    began_s = fleet.now_s
    await fleet.advance(3 * DAY_S)
    ((kind, at_s),) = fleet.notices
    assert kind == "dead"
    assert at_s - began_s <= 2 * DAY_S


@pytest.mark.parametrize("minutes", [2, 10, 60, 600])
async def test_polls_resume_after_a_failure_within_its_duration_or_the_usual_gap(
    fleet: VirtualFleet, minutes: int
) -> None:
    await fleet.advance(3 * HOUR_S)
    usual_s = _gaps_s(fleet.polls_s)[-1]
    ends_s = fleet.now_s + minutes * MINUTE_S
    fleet.answer = lambda now_s: (BadStatus.code, 500) if now_s < ends_s else ("unchanged", 304)
    await fleet.advance(2 * DAY_S)
    first_good_s = next(at_s for at_s in fleet.polls_s if at_s >= ends_s)
    assert first_good_s - ends_s <= max(minutes * MINUTE_S, usual_s)


async def test_a_network_outage_of_the_node_causes_no_back_off(fleet: VirtualFleet) -> None:
    await fleet.advance(3 * HOUR_S)
    usual_s = _gaps_s(fleet.polls_s)[-1]
    others = [Channel(f"{host}" * 40, f"https://{host}.example/feed") for host in "bcd"]
    for scheduler in fleet._schedulers.values():
        for other in others:
            scheduler.health.on_polled(other, PollResult(NODES[0], fleet.now_s, HostNotFound.code), "")
    fleet.answer = lambda _: (HostNotFound.code, 0)
    fleet.polls_s.clear()
    await fleet.advance(5 * HOUR_S)
    assert max(_gaps_s(fleet.polls_s)) <= 1.02 * usual_s
