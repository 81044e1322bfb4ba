"""The polls that the protocol told this node to make: when, from which base, and how they ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf

import structlog

from service.clock import Clock
from service.corona.events import CandidateFound, Event, StartPolling
from service.corona.schedule import next_poll_s
from service.errors import LimitReached, OperationalError, StoreUnavailable
from service.model import ChannelId, NodeId, PollResult
from service.store import Store
from workers.agenda import Agenda
from workers.poller import Poller
from workers.tasks import Tasks
from workers.watch import Found, Watch, compare_again, watch

_RESULTS_KEPT = 1_000
_CLOCK_JUMP_S = 1.0

log = structlog.get_logger(__name__)


class Polling:
    """A node's share of all polls. ``happened`` tells the protocol what was found."""

    def __init__(
        self,
        me: NodeId,
        store: Store,
        poller: Poller,
        *,
        clock: Clock,
        happened: Callable[[Event], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        self._me = me
        self._store = store
        self._poller = poller
        self._clock = clock
        self._happened = happened
        self._tasks = tasks
        self._fleet_ahead_s = 0.0
        self._agenda = Agenda()
        self._agenda_changed = asyncio.Event()
        self._phases: dict[ChannelId, StartPolling] = {}
        self._watches: dict[ChannelId, Watch] = {}
        self._found: dict[ChannelId, Found] = {}
        self._results: list[tuple[ChannelId, PollResult]] = []
        self._under_way: set[ChannelId] = set()

    def fleet_s(self) -> float:
        """Return the fleet's common time: the store's clock (Unix s)."""
        return self._clock.monotonic_s() + self._fleet_ahead_s

    def set_fleet_time(self, fleet_s: float, at_monotonic_s: float) -> None:
        """Take over the fleet's common time as it was at a moment of ours; after a jump of it, plan every poll anew."""
        before_s, self._fleet_ahead_s = self._fleet_ahead_s, fleet_s - at_monotonic_s
        if abs(self._fleet_ahead_s - before_s) > _CLOCK_JUMP_S:
            for phase in self._phases.values():
                self._plan(phase, self.fleet_s())
            self._agenda_changed.set()

    async def start(self, phases: Sequence[StartPolling]) -> None:
        """Poll these channels at these phases from now on; what is known already changes nothing."""
        phases = [
            phase for phase in phases if self._phases.get(phase.channel) != phase or phase.channel not in self._watches
        ]
        # Noted before the store answers: what is stopped meanwhile stays stopped.
        self._phases.update((phase.channel, phase) for phase in phases)
        await self._watch([phase.channel for phase in phases if phase.channel not in self._watches])
        now_s = self.fleet_s()
        for phase in phases:
            if self._phases.get(phase.channel) is phase:
                self._plan(phase, now_s, self._agenda.planned_s(phase.channel))
        self._agenda_changed.set()

    def stop(self, cid: ChannelId) -> None:
        """Poll this channel no more."""
        self._phases.pop(cid, None)
        self._watches.pop(cid, None)
        self._found.pop(cid, None)
        self._agenda.drop(cid)

    async def refresh(self, cids: Iterable[ChannelId]) -> None:
        """Compare with the store's present versions from now on, and again what was found on an earlier one."""
        stale = [cid for cid in cids if cid in self._phases]
        await self._watch(stale)
        for cid in stale:
            await self._compare_again(cid)

    async def _watch(self, cids: Sequence[ChannelId]) -> None:
        if cids:
            loaded = await self.load(cids)
            self._watches.update((cid, held) for cid, held in loaded.items() if cid in self._phases)

    async def load(self, cids: Sequence[ChannelId]) -> dict[ChannelId, Watch]:
        """Return the channels that exist, as the store has them."""
        states = await self._store.channels.states(cids)
        counts = await self._store.subscriptions.counts(list(cids))
        return {state.channel.id: watch(state, count) for state, count in zip(states, counts, strict=True) if state}

    async def poll_now(self, cid: ChannelId) -> PollResult | None:
        """Poll a channel at once, whether or not it is ours to poll; None if it does not exist.

        The result is written down before it is returned: who asked looks at the last polls next.
        """
        held = self._watches.get(cid) or (await self.load([cid])).get(cid)
        if held is None:
            return None
        result = await self._poll(held)
        await self.record()
        return result

    async def keep_agenda(self) -> None:
        """Start each poll when it is due, for ever."""
        while True:
            now_s = self.fleet_s()
            for cid in self._agenda.take(now_s):
                self._plan(self._phases[cid], now_s)
                self._tasks.start(self._poll_as_planned(cid))
            due_s = self._agenda.next_s()
            self._agenda_changed.clear()
            try:
                async with asyncio.timeout(None if due_s is None else max(0.0, due_s - self.fleet_s())):
                    await self._agenda_changed.wait()
            except TimeoutError:
                continue

    async def record(self) -> None:
        """Write down how polls ended since the last time; keep it for the next time if the store is away."""
        results, self._results = self._results, []
        try:
            await self._store.channels.polled(results)
        except StoreUnavailable:
            self._results = (results + self._results)[-_RESULTS_KEPT:]

    def _plan(self, phase: StartPolling, now_s: float, planned_s: float = inf) -> None:
        place = (phase.channel, phase.rank, phase.size, phase.interval_s)
        self._agenda.plan(phase.channel, next_poll_s(*place, now_s, planned_s=planned_s))

    async def _poll_as_planned(self, cid: ChannelId) -> None:
        held = self._watches.get(cid)
        if held is None or cid in self._under_way:
            return
        self._under_way.add(cid)
        try:
            await self._poll(held)
        except (LimitReached, OperationalError) as error:
            log.info("not polled", channel=cid[:8], why=str(error))
        finally:
            self._under_way.discard(cid)

    async def _poll(self, held: Watch) -> PollResult:
        result, found = await self._poller.poll(held, self._me)
        log.debug("polled", channel=held.channel.id[:8], outcome=result.outcome, status=result.status)
        self._results.append((held.channel.id, result))
        if found is not None:
            await self._offer(found)
        return result

    async def _offer(self, found: Found) -> None:
        cid = found.candidate.channel
        if cid in self._phases:
            self._found[cid] = found
        await self._happened(CandidateFound(found.candidate))

    async def _compare_again(self, cid: ChannelId) -> None:
        """Offer what is left of a find, if anything, after another version came in between."""
        found, held = self._found.pop(cid, None), self._watches.get(cid)
        if found is not None and held is not None and found.candidate.base_version < held.channel.version:
            left = compare_again(held, found, self._clock.wall_s())
            if left is not None:
                await self._offer(left)
