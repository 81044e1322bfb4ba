"""The polls that the protocol told this node to make: when, from which base, and how they ended."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from math import ceil, floor, inf
from typing import Any

import msgspec
import structlog

from service.clock import Clock
from service.corona.events import CandidateFound, Event, Refresh, StartPolling
from service.corona.messages import Candidate
from service.errors import HostBlocked, LimitReached, OperationalError, ParseKilled, PublisherError
from service.feeds.wire import Document
from service.metrics import POLL_LAG
from service.model import ChannelId, NodeId, PollResult
from service.store import Store
from service.tracing import FOUND, TRACING
from workers.agenda import Agenda
from workers.poller import Poller
from workers.tasks import Tasks
from workers.trail import tell
from workers.verdicts import Place, Verdicts
from workers.watch import Found, Watch, advanced, borrowed, is_of, kept, renewed, watch

_CLOCK_JUMP_S = 1.0
_AHEAD_S = 0.1
_SLOT_S = 0.05
"""Polls due in one slot, whichever node of this process makes them, begin together with it: what one of them asks
the store costs a tenth of what it costs alone."""
_LOADED_AHEAD = 100
"""Channels that are loaded at once before they are due, which costs a fifth of what loading them at their turns does;
more would hold up polls for longer than they may wait."""

log = structlog.get_logger(__name__)


class _Polled(msgspec.Struct, gc=False):
    """A channel that we poll: when, from which base (none before the first poll), and what was found."""

    phase: StartPolling
    watch: Watch | None = None
    begun_s: float = -inf
    """When the last poll that has begun was due, which may be ahead."""
    found: Found | None = None


class Polling:
    """A node's share of all polls.

    ``happened`` tells the protocol what was found; ``hubs_named`` which hubs a channel's document names for
    which topic. ``mates`` are those of this process's nodes, us included while we live.
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
        tasks: Tasks,
        mates: Iterable["Polling"],
    ) -> None:
        self._me = me
        self._store = store
        self._poller = poller
        self._clock = clock
        self._happened = happened
        self._hubs_named = hubs_named
        self._tasks = tasks
        self._mates = mates
        self._fleet_ahead_s = 0.0
        self._agenda = Agenda()
        self._agenda_changed = asyncio.Event()
        self._polled: dict[ChannelId, _Polled] = {}
        self._outdated: set[ChannelId] = set()
        """Of these, what has another version than its base, as far as we know: it is loaded before its next poll."""
        self._verdicts = Verdicts(store, clock, place_of=self._place_of, offer=self._offer_notice)
        self._under_way: set[ChannelId] = set()
        self._taking_in: dict[ChannelId, bool] = {}
        """Channels whose pushes are read, and whether more have come since."""
        self._loading = False

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
        """Poll a channel at this phase from now on.

        What its polls compare with is what a mate's compare with, or else loaded before the first of them: in its
        turn, since a node that takes over thousands of channels from a dead one would do nothing else for seconds, if
        it loaded them all before it polls.
        """
        polled = self._polled.get(phase.channel)
        if polled is None:
            polled = self._polled[phase.channel] = _Polled(phase, self._borrowed(phase))
            if polled.watch is None:
                self._outdated.add(phase.channel)
        else:
            polled.phase = phase
            if polled.watch is not None:
                polled.watch.subscribers = phase.subscribers
        self._plan(polled)

    def _borrowed(self, phase: StartPolling) -> Watch | None:
        """Return what a mate's polls of a channel compare with; should it be old, what is found by it is rejected."""
        bases = (mate.base_of(phase.channel) for mate in self._mates)
        return next((borrowed(base, phase.subscribers) for base in bases if base is not None), None)

    def base_of(self, cid: ChannelId) -> Watch | None:
        """Return what our polls of a channel compare with; None if we do not poll it, or would have to load that."""
        polled = self._polled.get(cid)
        return polled.watch if polled is not None and cid not in self._outdated else None

    def stop(self, cid: ChannelId) -> None:
        """Poll this channel no more."""
        self._polled.pop(cid, None)
        self._outdated.discard(cid)
        self._agenda.drop(cid)

    async def refresh(self, effects: Iterable[Refresh]) -> None:
        """Compare with other versions from the next poll on, and now what was found on an earlier one."""
        stale = {effect.channel: polled for effect in effects if (polled := self._told(effect))}
        if at_once := [cid for cid, polled in stale.items() if polled.found and cid in self._outdated]:
            await self._renew(at_once)
        for cid, polled in stale.items():
            if polled.found and self._polled.get(cid) is polled:
                self._tasks.start(self._compare_again(polled))

    def _told(self, effect: Refresh) -> _Polled | None:
        """Take over the version that we were told, or else have it loaded; return the channel if we poll it."""
        polled, told = self._polled.get(effect.channel), effect.told
        if polled is None or polled.watch is None or told is None or told.base is None:
            if polled is not None:
                self._outdated.add(effect.channel)
        elif effect.channel not in self._outdated and polled.watch.channel.version < told.version:
            before, polled.watch = polled.watch, advanced(polled.watch, told.version, told.base)
            if polled.found and is_of(polled.found.candidate, told.base):
                self._poller.versioned(before, polled.watch, polled.found.candidate)
                polled.found = None
        return polled

    async def _renew(self, cids: Sequence[ChannelId]) -> None:
        for cid, state in zip(cids, await self._store.channels.states(cids), strict=True):
            polled = self._polled.get(cid)
            if polled is None or state is None:
                continue
            self._outdated.discard(cid)
            base = watch(state, polled.phase.subscribers, self._clock.wall_s())
            polled.watch = base if polled.watch is None else renewed(polled.watch, base)

    async def poll_now(self, cid: ChannelId) -> PollResult | None:
        """Poll a channel at once, whether or not it is ours to poll; None if it does not exist.

        The result is written down before it is returned: who asked looks at the last polls next.
        """
        held = await self._held(cid)
        if held is None:
            return None
        await self._poller.may_poll(held)
        tell("The channel may be polled: nobody wants it to be left alone, and its budget has a poll left.")
        result = await self._poll(held)
        await self.record()
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
            await self._store.websub.drop(cid)
            return
        is_complete = True

        async def take() -> list[Document]:
            nonlocal is_complete
            pushes = await self._store.websub.taken(cid)
            is_complete = all(push.body for push in pushes)
            headers = ({"content-type": push.content_type} for push in pushes)
            return [
                Document(push.body, held.channel.url, header, partial=True)
                for push, header in zip(pushes, headers, strict=True)
                if is_complete
            ]

        try:
            self._poller.refuse_blocked(held.channel)
            await self._poller.take_in(held, await self._store.websub.waiting_bytes(cid), take, self._offer)
        except HostBlocked:
            await self._store.websub.drop(cid)
            raise
        except (LimitReached, ParseKilled) as error:
            log.info("push left to a poll", channel=cid[:8], why=str(error))
            await self._store.websub.drop(cid)
            is_complete = False
        if not is_complete:
            await self._poller.may_poll(held)
            await self._poll(held)

    async def keep_agenda(self) -> None:
        """Start each poll when it is due, for ever: a little ahead, so that polls ask the store together."""
        while True:
            now_s = self.fleet_s()
            first_s = self._agenda.next_s()
            if first_s is None or (slot_s := self._slot_s(first_s)) > now_s + _AHEAD_S:
                await self._agenda_change(None if first_s is None else slot_s - _AHEAD_S - now_s)
                continue
            outdated: list[ChannelId] = []
            for due_s, cid in self._agenda.take(max(now_s, slot_s + _SLOT_S, first_s)):
                polled = self._polled[cid]
                # A poll that is begun ahead of its time must not be planned once more.
                polled.begun_s = max(due_s, now_s)
                self._plan(polled)
                if cid in self._outdated:
                    outdated.append(cid)
                else:
                    self._tasks.start(self._poll_as_planned(cid, slot_s))
            if outdated:
                self._tasks.start(self._poll_renewed(outdated, slot_s))

    async def _load_ahead(self) -> None:
        """Load what will have to be loaded, in the order of turns, and leave as much time to others as that takes."""
        try:
            while coming := self._agenda.soonest(_LOADED_AHEAD, self._outdated):
                begun_s = self._clock.monotonic_s()
                await self._renew(coming)
                if self._outdated.issuperset(coming):
                    return  # they are gone from the store: their owner will say so
                await asyncio.sleep(self._clock.monotonic_s() - begun_s)
        except OperationalError as error:
            log.info("not loaded ahead", why=str(error))
        finally:
            self._loading = False

    def _slot_s(self, due_s: float) -> float:
        """Return when the slot of a poll begins: at the same instant of our clock for all nodes of this process."""
        return floor((due_s - self._fleet_ahead_s) / _SLOT_S) * _SLOT_S + self._fleet_ahead_s

    async def _agenda_change(self, within_s: float | None) -> None:
        self._agenda_changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._agenda_changed.wait()

    async def record(self) -> None:
        """Write down how polls ended since the last time, and what that proves."""
        await self._verdicts.record()

    def _place_of(self, cid: ChannelId) -> Place | None:
        polled = self._polled.get(cid)
        return Place(polled.watch.channel, polled.phase) if polled and polled.watch else None

    async def _held(self, cid: ChannelId) -> Watch | None:
        polled = self._polled.get(cid)
        if polled is None:
            (state,), (count,) = await asyncio.gather(
                self._store.channels.states([cid]), self._store.subscriptions.counts([cid])
            )
            return watch(state, count, self._clock.wall_s()) if state else None
        if cid in self._outdated:
            await self._renew([cid])
        return polled.watch

    async def _offer_notice(self, candidate: Candidate) -> None:
        await self._happened(CandidateFound(candidate))

    def _plan(self, polled: _Polled) -> None:
        phase, after_s = polled.phase, max(self.fleet_s(), polled.begun_s)
        due_s, interval_s = phase.rota.next_poll_s(phase.rank, after_s), phase.rota.interval_s
        # A rota that begins more than a turn (and what clocks differ by) ahead is from before our clock was set back.
        if due_s - after_s > 2 * interval_s:
            due_s -= (ceil((due_s - after_s) / interval_s) - 1) * interval_s
        self._agenda.plan(phase.channel, due_s)
        self._agenda_changed.set()

    async def _poll_as_planned(self, cid: ChannelId, at_s: float) -> None:
        polled = self._polled.get(cid)
        if polled is None or polled.watch is None or cid in self._under_way:
            return
        self._under_way.add(cid)
        try:
            await self._poller.may_poll(polled.watch)
            if (early_s := at_s - self.fleet_s()) > 0:
                await asyncio.sleep(early_s)
            # While it waited, it may have been stopped, or another version may have come.
            if (polled := self._polled.get(cid)) and polled.watch:
                # After the set's next poll it would only burden the publisher: what there is was seen by that one.
                late_s = self.fleet_s() - at_s
                POLL_LAG.observe(max(late_s, 0.0))
                await self._poll(polled.watch, self._clock.monotonic_s() + polled.phase.rota.gap_s - late_s)
        except (LimitReached, HostBlocked, OperationalError) as error:
            log.info("not polled", channel=cid[:8], why=str(error))
        finally:
            self._under_way.discard(cid)

    async def _poll_renewed(self, cids: Sequence[ChannelId], at_s: float) -> None:
        try:
            await self._renew(cids)
        except OperationalError as error:
            log.info("not polled", channels=len(cids), why=str(error))
            return
        for cid in cids:
            self._tasks.start(self._poll_as_planned(cid, at_s))
        if not self._loading:
            self._loading = True
            self._tasks.start(self._load_ahead())

    async def _poll(self, held: Watch, before_s: float = inf) -> PollResult:
        poll = await self._poller.poll(held, self._me, before_s)
        result = poll.result
        log.debug("polled", channel=held.channel.id[:8], outcome=result.outcome, status=result.status)
        self._verdicts.polled(held.channel, result, poll.permanent_url)
        if poll.found is not None:
            await self._offer(poll.found, result.took_s)
        if poll.topic:
            self._tasks.start(self._hubs_named(held.channel.id, poll.hubs, poll.topic))
        return result

    async def _offer(self, found: Found, took_s: float = 0.0) -> None:
        cid = found.candidate.channel
        delta = found.candidate.delta
        began_s = self._clock.wall_s() - took_s
        TRACING.step(delta.trace, FOUND, began_s, channel=cid, node=self._me, changes=len(delta.changes))
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
