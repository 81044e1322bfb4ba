"""A node's scheduled polls: when each channel is due, what its next poll compares with, and what its results mean.

The protocol (``service.corona.protocol``) says which channels to poll by which rota. Polls that are due within a
twentieth of a second begin together, so that what they ask the store travels together.

A notice that polls prove, as that a channel is dead, is offered once per poll and never kept: until its version is
there, every further poll finds the same. So nothing is lost when an owner is busy, outdated or dead.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import ceil, floor, inf
from typing import Any

import msgspec
import structlog

from service.clock import Clock
from service.corona.events import CandidateFound, Event, StartPolling, UpdateBase
from service.corona.messages import Candidate
from service.errors import HostBlocked, LimitReached, OperationalError, ParseKilled, PublisherError, StoreUnavailable
from service.feeds.channel_health import (
    BUSY,
    ChannelHealth,
    OutageDetector,
    PollReport,
    diagnose,
    recheck_delay_s,
    symptom_of,
)
from service.feeds.polling_hints import backoff_s
from service.feeds.sandbox.protocol import Document
from service.model import Channel, ChannelId, Delta, NodeId, Notice, PollResult, Validators
from service.observability.metrics import POLL_LAG
from service.observability.tracing import FIRST_STEP, TRACING
from service.store import Store
from workers.polling.poll_state import DetectedUpdate, PollState, advanced, is_of, kept, renewed, watch
from workers.polling.poller import Poller, tell
from workers.tasks import BackgroundTasks

_REPORTS_KEPT = 1_000

log = structlog.get_logger(__name__)


class PolledChannel(msgspec.Struct, frozen=True):
    """A channel that this node polls, as it knows it, and at which phase."""

    channel: Channel
    phase: StartPolling


class HealthMonitor:
    """One node's part in judging channels.

    ``place_of`` tells where a channel stands here, None if others poll it. ``offer`` brings a candidate to
    the channel's owner.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        place_of: Callable[[ChannelId], PolledChannel | None],
        offer: Callable[[Candidate], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._place_of = place_of
        self._offer = offer
        self._outage = OutageDetector()
        self._reports: list[tuple[ChannelId, PollReport]] = []

    def polled(self, channel: Channel, result: PollResult, permanent_url: str) -> None:
        """Take in how a poll ended; what may be our own network's fault charges nobody yet."""
        charge, was_ours = None, self._outage.is_ours
        for settled, earlier in self._outage.settle(channel, result):
            if earlier is result:
                charge = symptom_of(channel.url, result, permanent_url)
            else:
                self._charge(settled, earlier)
        self._reports.append((channel.id, PollReport(result, charge)))
        if self._outage.is_ours is not was_ours:
            log.warning("publishers can be reached again" if was_ours else "nobody can be reached; is our network up?")

    async def record(self) -> None:
        """Write down how polls ended since the last time, and judge; keep it for the next time if the store is away."""
        for channel, result in self._outage.overdue(self._clock.wall_s()):
            self._charge(channel, result)
        reports, self._reports = self._reports, []
        try:
            cases = await self._store.channels.record_polls(reports)
        except StoreUnavailable:
            self._reports = (reports + self._reports)[-_REPORTS_KEPT:]
            return
        with contextlib.suppress(StoreUnavailable):  # the next polls tell the same
            for (cid, report), case in zip(reports, cases, strict=True):
                if case is not None and (place := self._place_of(cid)) is not None:
                    await self._weigh(place, report.result, case)

    def _charge(self, channel: Channel, result: PollResult) -> None:
        self._reports.append((channel.id, PollReport(result, symptom_of(channel.url, result), again=True)))

    async def _weigh(self, place: PolledChannel, result: PollResult, case: ChannelHealth) -> None:
        cid = place.channel.id
        rest = (
            backoff_s(case.refusals, place.phase.schedule.interval_s) if case.charge == BUSY else recheck_delay_s(case)
        )
        # A publisher that said how long it wants to be left alone knows better.
        if rest and not await self._store.request_budgets.paused_s(cid):
            await self._store.request_budgets.pause(cid, rest)
        notice = diagnose(case, place.phase.schedule.size, result.detail)
        if notice is not None:
            log.info("verdict", channel=cid[:8], kind=notice.kind, detail=notice.detail)
            await self._offer(_candidate(place.channel, notice, result.at_s))


def _candidate(channel: Channel, notice: Notice, at_s: float) -> Candidate:
    """Return a candidate that leaves validators and memory alone."""
    return Candidate(Delta(channel.id, channel.version, 0, at_s, (), notice=notice), Validators(), b"")


_CLOCK_JUMP_S = 1.0
_AHEAD_S = 0.1
_SLOT_S = 0.05
"""Polls due in one slot begin together: what one of them asks the store costs a tenth of what it costs alone."""


class DueQueue:
    """The next poll of each channel, in fleet time (seconds): a heap in which outdated times stay until they surface.

    A heap costs a few microseconds per poll whatever the number of channels, where one interval job per channel
    would cost a fifth of a core at 1,000 polls a second.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, ChannelId]] = []
        self._due_s: dict[ChannelId, float] = {}

    def plan(self, channel: ChannelId, due_s: float) -> None:
        """Poll the channel at this time, instead of any time planned before."""
        if self._due_s.get(channel) != due_s:
            self._due_s[channel] = due_s
            heappush(self._heap, (due_s, channel))

    def drop(self, channel: ChannelId) -> None:
        """Plan no poll of the channel."""
        self._due_s.pop(channel, None)

    def planned_s(self, channel: ChannelId) -> float:
        """Return when the channel is due; infinity if it is not planned."""
        return self._due_s.get(channel, inf)

    def take(self, until_s: float) -> list[tuple[float, ChannelId]]:
        """Return what is due until then, earliest first, with its time; it is planned no more."""
        taken = []
        while self._heap and self._heap[0][0] <= until_s:
            due_s, channel = heappop(self._heap)
            if self._due_s.get(channel) == due_s:
                del self._due_s[channel]
                taken.append((due_s, channel))
        return taken

    def next_s(self) -> float | None:
        """Return when something may be due next (it may turn out to be outdated), or None."""
        return self._heap[0][0] if self._heap else None


class State(Enum):
    """Whether a channel's base is the version that its owner told last, and whether a scheduled poll is under way.

    The base is loaded before a poll begins, unless the owner sent it. A channel has one scheduled poll at a time.
    """

    OUTDATED = "the base is loaded at the next turn"
    IDLE = "the base is current"
    POLLING = "the base is current, and a poll is under way"
    SUPERSEDED = "a poll is under way whose base is outdated"


_LOADED = {State.OUTDATED: State.IDLE, State.SUPERSEDED: State.POLLING}
_VERSION_TOLD = {State.IDLE: State.OUTDATED, State.POLLING: State.SUPERSEDED}
_POLL_ENDED = {State.POLLING: State.IDLE, State.SUPERSEDED: State.OUTDATED}


class _Polled(msgspec.Struct, gc=False):
    """A channel that this node polls: by which rota, from which base (none before it is loaded), and what it found."""

    phase: StartPolling
    state: State = State.OUTDATED
    watch: PollState | None = None
    begun_s: float = -inf
    """When the last poll that has begun was due, which may be ahead."""
    found: DetectedUpdate | None = None

    def happened(self, transition: dict[State, State]) -> None:
        self.state = transition.get(self.state, self.state)


class PollScheduler:
    """A node's share of all polls.

    ``happened`` tells the protocol what was found; ``hubs_named`` which hubs a channel's document names for
    which topic.
    """

    def __init__(
        self,
        me: NodeId,
        store: Store,
        poller: Poller,
        *,
        clock: Clock,
        happened: Callable[[Event], Awaitable[None]],
        hubs_named: Callable[[ChannelId, Sequence[str], str], Coroutine[Any, Any, None]],
        tasks: BackgroundTasks,
    ) -> None:
        self._me = me
        self._store = store
        self._poller = poller
        self._clock = clock
        self._happened = happened
        self._hubs_named = hubs_named
        self._tasks = tasks
        self._fleet_ahead_s = 0.0
        self._agenda = DueQueue()
        self._agenda_changed = asyncio.Event()
        self._polled: dict[ChannelId, _Polled] = {}
        self.verdicts = HealthMonitor(store, clock, place_of=self._place_of, offer=self._offer_notice)
        self._taking_in: dict[ChannelId, bool] = {}
        """Channels whose pushes are read, and whether more have come since."""

    def fleet_s(self) -> float:
        """Return the fleet's common time: the store's clock (Unix s)."""
        return self._clock.monotonic_s() + self._fleet_ahead_s

    def set_fleet_time(self, fleet_s: float, at_monotonic_s: float) -> None:
        """Take over the fleet's common time as it was at a moment of ours; after a jump of it, plan every poll anew."""
        before_s, self._fleet_ahead_s = self._fleet_ahead_s, fleet_s - at_monotonic_s
        if abs(self._fleet_ahead_s - before_s) > _CLOCK_JUMP_S:
            for polled in self._polled.values():
                polled.begun_s = -inf
                self._plan(polled)

    def start(self, phase: StartPolling) -> None:
        """Poll a channel by this rota from now on. Its base is loaded at its turn.

        A node that takes over thousands of channels would do nothing else for seconds if it loaded all at once.
        """
        polled = self._polled.setdefault(phase.channel, _Polled(phase))
        polled.phase = phase
        if polled.watch is not None:
            polled.watch.subscribers = phase.subscribers
        self._plan(polled)

    def stop(self, cid: ChannelId) -> None:
        """Poll this channel no more."""
        self._polled.pop(cid, None)
        self._agenda.drop(cid)

    async def refresh(self, effects: Iterable[UpdateBase]) -> None:
        """Compare with other versions from the next poll on, and now what was found on an earlier one."""
        changed: dict[ChannelId, _Polled] = {}
        for effect in effects:
            if polled := self._polled.get(effect.channel):
                changed[effect.channel] = polled
                self._go_on_from(polled, effect)
        if at_once := [cid for cid, polled in changed.items() if polled.found and polled.state in _LOADED]:
            await self._load(at_once)
        for cid, polled in changed.items():
            if polled.found and self._polled.get(cid) is polled:
                self._tasks.start(self._compare_again(polled))

    def _go_on_from(self, polled: _Polled, effect: UpdateBase) -> None:
        """Take over the version that the owner told with its base, or else have it loaded."""
        told, before = effect.announcement, polled.watch
        if before is None or told is None or told.base is None:
            polled.happened(_VERSION_TOLD)
        elif polled.state not in _LOADED and before.channel.version < told.version:
            polled.watch = advanced(before, told.version, told.base)
            if polled.found and is_of(polled.found.candidate, told.base):
                self._poller.versioned(before, polled.watch, polled.found.candidate)
                polled.found = None

    async def _load(self, cids: Sequence[ChannelId]) -> None:
        """Load bases from the store. What does not exist there stays outdated: its owner will say so."""
        for cid, state in zip(cids, await self._store.channels.states(cids), strict=True):
            polled = self._polled.get(cid)
            if polled is not None and state is not None:
                base = watch(state, polled.phase.subscribers, self._clock.wall_s())
                polled.watch = base if polled.watch is None else renewed(polled.watch, base)
                polled.happened(_LOADED)

    async def poll_now(self, cid: ChannelId) -> PollResult | None:
        """Poll a channel at once, whether or not it is ours to poll; None if it does not exist.

        The result is written down before it is returned: who asked looks at the last polls next.
        """
        held = await self._held(cid)
        if held is None:
            return None
        await self._poller.acquire_poll(held)
        tell("The channel may be polled: nobody wants it to be left alone, and its budget has a poll left.")
        result = await self._poll(held)
        await self.verdicts.record()
        tell("The result is written down.")
        return result

    async def take_in(self, cid: ChannelId) -> None:
        """Compare what a hub pushed for a channel, one push after the other; what is too much becomes one poll.

        Raises :class:`HostBlocked`: nothing of a blocked host is wanted, unasked either; :class:`LimitReached` if that
        poll has to wait; the :class:`PublisherError` of a push that cannot be read. The next poll finds what is new.
        """
        if cid in self._taking_in:
            self._taking_in[cid] = True
            return
        self._taking_in[cid] = True
        try:
            while self._taking_in[cid]:
                self._taking_in[cid] = False
                await self._take_in(cid)
        finally:
            del self._taking_in[cid]

    async def _take_in(self, cid: ChannelId) -> None:
        held = await self._held(cid)
        # What a dormant channel lists is to be taken in as a whole.
        if held is None or held.channel.dormant:
            await self._store.websub.drop_pushes(cid)
            return
        try:
            self._poller.raise_if_blocked(held.channel)
            async with self._poller.hold_push_slot(held, await self._store.websub.queued_bytes(cid)) as lane:
                pushes = await self._store.websub.take_pushes(cid)
                if all(push.body for push in pushes):
                    for push in pushes:
                        headers = {"content-type": push.content_type}
                        pushed = Document(push.body, held.channel.url, headers, partial=True)
                        if found := await self._poller.compare_pushed(held, pushed, lane):
                            await self._offer(found)
                    return
        except HostBlocked:
            await self._store.websub.drop_pushes(cid)
            raise
        except (LimitReached, ParseKilled) as error:
            log.info("push left to a poll", channel=cid[:8], why=str(error))
            await self._store.websub.drop_pushes(cid)
        await self._poller.acquire_poll(held)
        await self._poll(held)

    async def keep_agenda(self) -> None:
        """Start each poll when it is due, for ever: a little ahead, so that polls ask the store together."""
        while True:
            now_s, first_s = self.fleet_s(), self._agenda.next_s()
            if first_s is None or (slot_s := self._slot_s(first_s)) > now_s + _AHEAD_S:
                self._agenda_changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if first_s is None else slot_s - _AHEAD_S - now_s):
                        await self._agenda_changed.wait()
                continue
            outdated: dict[ChannelId, float] = {}
            for due_s, cid in self._agenda.take(max(now_s, slot_s + _SLOT_S, first_s)):
                polled = self._polled[cid]
                # A poll that is begun ahead of its time must not be planned once more.
                polled.begun_s = max(due_s, now_s)
                self._plan(polled)
                if polled.state is State.OUTDATED:
                    outdated[cid] = due_s
                else:
                    self._begin(polled, due_s, slot_s)
            if outdated:
                self._tasks.start(self._load_and_begin(outdated, slot_s))

    def _slot_s(self, due_s: float) -> float:
        """Return when the slot of a poll begins: at the same instant of the clock for all nodes of a process."""
        return floor((due_s - self._fleet_ahead_s) / _SLOT_S) * _SLOT_S + self._fleet_ahead_s

    async def _load_and_begin(self, due_s: dict[ChannelId, float], at_s: float) -> None:
        try:
            await self._load(list(due_s))
        except OperationalError as error:
            log.info("not polled", channels=len(due_s), why=str(error))
            return
        for cid in due_s.keys() & self._polled.keys():
            self._begin(self._polled[cid], due_s[cid], at_s)

    def _begin(self, polled: _Polled, due_s: float, at_s: float) -> None:
        """Begin the poll that is due, unless there is nothing to compare with, or the last one is still under way."""
        if polled.state is State.IDLE:
            polled.state = State.POLLING
            self._tasks.start(self._poll_scheduled(polled, due_s, at_s))

    async def _poll_scheduled(self, polled: _Polled, due_s: float, at_s: float) -> None:
        cid = polled.phase.channel
        assert polled.watch is not None  # noqa: S101 - what is being polled was loaded
        try:
            await self._poller.acquire_poll(polled.watch)
            if (early_s := at_s - self.fleet_s()) > 0:
                await asyncio.sleep(early_s)
            if self._polled.get(cid) is polled:  # not stopped meanwhile; another version may have come
                # After the set's next poll it would only burden the publisher: what there is was seen by that one.
                late_s = self.fleet_s() - due_s
                POLL_LAG.observe(max(late_s, 0.0))
                await self._poll(polled.watch, self._clock.monotonic_s() + polled.phase.schedule.gap_s - late_s)
        except (LimitReached, HostBlocked, OperationalError) as error:
            log.info("not polled", channel=cid[:8], why=str(error))
        finally:
            polled.happened(_POLL_ENDED)

    def _place_of(self, cid: ChannelId) -> PolledChannel | None:
        polled = self._polled.get(cid)
        return PolledChannel(polled.watch.channel, polled.phase) if polled and polled.watch else None

    async def _held(self, cid: ChannelId) -> PollState | None:
        """Return the current base of a channel, whether or not this node polls it; None if there is no such channel."""
        polled = self._polled.get(cid)
        if polled is None:
            (state,), (count,) = await asyncio.gather(
                self._store.channels.states([cid]), self._store.subscriptions.counts([cid])
            )
            return watch(state, count, self._clock.wall_s()) if state else None
        if polled.state in _LOADED:
            await self._load([cid])
        return polled.watch

    async def _offer_notice(self, candidate: Candidate) -> None:
        await self._happened(CandidateFound(candidate))

    def _plan(self, polled: _Polled) -> None:
        phase, after_s = polled.phase, max(self.fleet_s(), polled.begun_s)
        due_s, interval_s = phase.schedule.next_poll_s(phase.rank, after_s), phase.schedule.interval_s
        # A rota that begins more than a turn (and what clocks differ by) ahead is from before our clock was set back.
        if due_s - after_s > 2 * interval_s:
            due_s -= (ceil((due_s - after_s) / interval_s) - 1) * interval_s
        self._agenda.plan(phase.channel, due_s)
        self._agenda_changed.set()

    async def _poll(self, held: PollState, before_s: float = inf) -> PollResult:
        poll = await self._poller.poll(held, self._me, before_s)
        result = poll.result
        log.debug("polled", channel=held.channel.id[:8], outcome=result.outcome, status=result.status)
        self.verdicts.polled(held.channel, result, poll.permanent_url)
        if poll.found is not None:
            await self._offer(poll.found, result.took_s)
        if poll.topic:
            self._tasks.start(self._hubs_named(held.channel.id, poll.hubs, poll.topic))
        return result

    async def _offer(self, found: DetectedUpdate, took_s: float = 0.0) -> None:
        cid = found.candidate.channel
        delta = found.candidate.delta
        began_s = self._clock.wall_s() - took_s
        TRACING.record_step(delta.trace_id, FIRST_STEP, began_s, channel=cid, node=self._me, changes=len(delta.changes))
        if polled := self._polled.get(cid):
            polled.found = found
        tell("The changes are on their way to the owner of the channel, who makes a version of them.")
        await self._happened(CandidateFound(found.candidate))

    async def _compare_again(self, polled: _Polled) -> None:
        """Offer what is left of a find, if anything, after another version came in between."""
        found, held = polled.found, polled.watch
        if found is None or held is None or found.candidate.base_version >= held.channel.version:
            return
        polled.found = None
        try:
            left = await self._poller.compare_again(held, found)
        except (PublisherError, OperationalError) as error:
            log.info("not compared again; the next poll will", channel=held.channel.id[:8], why=str(error))
            kept(held, found.documents)
            return
        if left is not None:
            await self._offer(left)
