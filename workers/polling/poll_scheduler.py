"""The scheduler of a node's polls: starts each poll when it is due, and passes detected changes to the protocol.

The protocol (:mod:`service.corona.node_protocol`) decides which channels this node polls, and on which schedule.
"""

# Polls that are due within a twentieth of a second begin together, so that their requests to the store share round
# trips.

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import ceil, floor, inf

import msgspec
import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.corona.events import CandidateFound, Event, LimitObserved, StartPolling, UpdateBase
from service.corona.messages import PollingLimit
from service.corona.polling_limits import LimitReason
from service.errors import HostBlocked, LimitReached, OperationalError, PublisherError, RequestsPaused
from service.feeds.channel_health import is_success
from service.model import Channel, ChannelId, NodeId, PollResult
from service.observability.metrics import POLL_LAG
from service.observability.tracing import FIRST_STEP, TRACING
from service.store import Store
from workers.polling.channel_health_monitor import ChannelHealthMonitor
from workers.polling.due_queue import DueQueue
from workers.polling.poll_state import (
    DetectedUpdate,
    PollState,
    advance_to_version,
    build_poll_state,
    is_version_of,
    keep_unversioned,
)
from workers.polling.poller import Poller, trace
from workers.polling.websub_pushes import PushProcessor

_CLOCK_JUMP_S = 1.0
_AHEAD_S = 0.1
_SLOT_S = 0.05
"""Length of a time slot. Polls that are due in the same slot begin together, and share requests to the store, which
reduces their costs to a tenth."""

log = structlog.get_logger(__name__)


class _ScheduledChannel(msgspec.Struct, gc=False):
    """A channel (a feed or page) that this node polls on a schedule. At most one scheduled poll of it runs at a time.

    The *base* is the version with which polls compare the document.

    - ``poll_state``: the state between polls; None until the base for the first poll has been loaded.
    - ``is_base_current``: whether the base is the latest version that the channel's owner has announced. If not, the
      latest version is loaded before the next poll.
    - ``is_polling``: whether a scheduled poll is in progress.
    """

    assignment: StartPolling
    poll_state: PollState | None = None
    is_base_current: bool = False
    is_polling: bool = False
    begun_s: float = -inf
    """The due time of the last poll that has begun; it may be in the near future, because polls begin a little
    early."""
    update: DetectedUpdate | None = None
    """The last detected update; None if there has been none, or once it has become part of a version."""


class PollScheduler:
    """Starts the polls of one node.

    - ``clock`` returns the time that all nodes share, as Unix time.
    - ``on_events`` passes events to the protocol, for example that a poll has detected changes.
    - ``on_hubs_found`` is called with a channel, the WebSub hubs that its document names, and the topic: the URL that
      the document states as its own.
    """

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        poller: Poller,
        *,
        clock: Clock,
        on_events: Callable[..., Awaitable[None]],
        on_hubs_found: Callable[[ChannelId, Sequence[str], str], None],
        tasks: BackgroundTasks,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._poller = poller
        self._clock = clock
        self._on_events = on_events
        self._on_hubs_found = on_hubs_found
        self._tasks = tasks
        self._ahead_s = 0.0
        """The clock's Unix time minus its monotonic time, in seconds."""
        self._queue = DueQueue()
        self._queue_changed = asyncio.Event()
        self._channels: dict[ChannelId, _ScheduledChannel] = {}
        self.health = ChannelHealthMonitor(store, clock, self._get_polled)
        self.pushes = PushProcessor(
            store.websub, poller, get_state=self._get_state, on_detected=self._on_pushed, poll=self._poll
        )

    def on_clock_set(self) -> None:
        """Reschedule all polls if the Unix time of the clock has jumped."""
        before_s, self._ahead_s = self._ahead_s, self._clock.wall_s() - self._clock.monotonic_s()
        if abs(self._ahead_s - before_s) > _CLOCK_JUMP_S:
            for channel in self._channels.values():
                channel.begun_s = -inf
                self._schedule(channel)

    def start_polling(self, assignment: StartPolling) -> None:
        """Poll a channel on the schedule in ``assignment`` from now on; a poll that is already due stays due."""
        # The version that polls compare with is loaded before the first poll, not now: a node that takes over thousands
        # of channels would be busy for seconds if it loaded all versions at once.
        channel = self._channels.setdefault(assignment.channel, _ScheduledChannel(assignment))
        channel.assignment = assignment
        if channel.poll_state is not None:
            channel.poll_state.subscribers = assignment.subscribers
        if self._queue.due_s(assignment.channel) > self._clock.wall_s():
            self._schedule(channel)

    def stop_polling(self, channel_id: ChannelId) -> None:
        """Cancel the scheduled polls of a channel."""
        self._channels.pop(channel_id, None)
        self._queue.remove(channel_id)

    async def update_bases(self, effects: Iterable[UpdateBase]) -> None:
        """Make polls compare documents with the versions in ``effects``, which the channels' owners have announced.

        If this node has detected changes that are not in a channel's new version, they are offered to the owner again.
        """
        changed: dict[ChannelId, _ScheduledChannel] = {}
        for effect in effects:
            if channel := self._channels.get(effect.channel):
                changed[effect.channel] = channel
                self._update_base(channel, effect)
        if needed := [cid for cid, channel in changed.items() if channel.update and not channel.is_base_current]:
            await self._load(needed)
        for channel_id, channel in changed.items():
            if channel.update and self._channels.get(channel_id) is channel:
                self._tasks.start(self._compare_again(channel))

    def _update_base(self, channel: _ScheduledChannel, effect: UpdateBase) -> None:
        """Make polls of a channel compare the document with the version that the channel's owner has announced."""
        # If the announcement does not describe the base, it is loaded before the next poll.
        announced, before = effect.announcement, channel.poll_state
        if before is None or announced is None or announced.base is None:
            channel.is_base_current = False
        elif channel.is_base_current and before.channel.version < announced.version:
            base, after = announced.base, msgspec.structs.replace(before.channel, version=announced.version)
            channel.poll_state = advance_to_version(before, after, base.validators, base.subscribers, base.digest)
            if channel.update and is_version_of(channel.update.candidate, base):
                self._poller.on_versioned(before, channel.poll_state, channel.update.candidate)
                channel.update = None

    async def _load(self, channel_ids: Sequence[ChannelId]) -> None:
        """Load from the store the versions with which polls of these channels compare the documents."""
        # A channel that does not exist stays outdated until its owner stops its polls.
        stored = await self._store.channels.states(channel_ids)
        for channel_id, stored_state in zip(channel_ids, stored, strict=True):
            channel = self._channels.get(channel_id)
            if channel is not None and stored_state is not None:
                subscribers, known = channel.assignment.subscribers, channel.poll_state
                channel.poll_state = build_poll_state(stored_state, subscribers, self._clock.wall_s(), known)
                channel.is_base_current = True

    async def poll_now(self, channel_id: ChannelId) -> PollResult | None:
        """Poll a channel at once, even if this node does not poll it on a schedule, and return the result.

        Return None if the channel does not exist.
        """
        # The result is stored before the method returns, because the caller may list the latest polls next.
        state = await self._get_state(channel_id)
        if state is None:
            return None
        await self._poller.acquire_poll(state)
        trace("The channel is not paused, and its request limit allows a poll.")
        result = await self._poll(state)
        await self._on_events(*await self.health.record())
        trace("The result is stored.")
        return result

    async def run(self) -> None:
        """Start each poll when it is due, until cancelled."""
        # Polls are prepared a little ahead, so that their requests to the store share round trips.
        while True:
            now_s, first_s = self._clock.wall_s(), self._queue.next_s()
            if first_s is None or (slot_s := self._slot_s(first_s)) > now_s + _AHEAD_S:
                self._queue_changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if first_s is None else slot_s - _AHEAD_S - now_s):
                        await self._queue_changed.wait()
                continue
            outdated: dict[ChannelId, float] = {}
            for due_s, channel_id in self._queue.pop_due(max(now_s, slot_s + _SLOT_S, first_s)):
                channel = self._channels[channel_id]
                # A poll that is begun ahead of its time must not be scheduled again.
                channel.begun_s = max(due_s, now_s)
                self._schedule(channel)
                if channel.is_base_current:
                    self._begin(channel, due_s, slot_s)
                else:
                    outdated[channel_id] = due_s
            if outdated:
                self._tasks.start(self._load_and_begin(outdated, slot_s))

    def _slot_s(self, due_s: float) -> float:
        """Return the time (Unix s of Redis's clock) at which a poll that is due at ``due_s`` begins.

        Polls begin together at the starts of short time slots, which are the same for all nodes of a process.
        """
        return floor((due_s - self._ahead_s) / _SLOT_S) * _SLOT_S + self._ahead_s

    async def _load_and_begin(self, due_s: dict[ChannelId, float], at_s: float) -> None:
        await self._load(list(due_s))
        for channel_id in due_s.keys() & self._channels.keys():
            self._begin(self._channels[channel_id], due_s[channel_id], at_s)

    def _begin(self, channel: _ScheduledChannel, due_s: float, at_s: float) -> None:
        """Start a task for the poll that is due at ``due_s``; the task sends the request at ``at_s`` or later.

        Both are Unix times in seconds, by Redis's clock. Do nothing if the version to compare with could not be loaded,
        or if the previous poll is still in progress.
        """
        if channel.is_base_current and not channel.is_polling:
            channel.is_polling = True
            self._tasks.start(self._poll_scheduled(channel, due_s, at_s))

    async def _poll_scheduled(self, channel: _ScheduledChannel, due_s: float, at_s: float) -> None:
        channel_id = channel.assignment.channel
        assert channel.poll_state is not None  # noqa: S101 - a channel that is being polled was loaded
        try:
            await self._poller.acquire_poll(channel.poll_state)
            if (early_s := at_s - self._clock.wall_s()) > 0:
                await asyncio.sleep(early_s)
            if self._channels.get(channel_id) is channel:  # not stopped meanwhile; its base may have advanced
                # Once the next poll of the channel by any node is due, this poll cannot detect a change earlier.
                POLL_LAG.observe(max(self._clock.wall_s() - due_s, 0.0))
                await self._poll(channel.poll_state, channel.assignment.schedule.next_channel_poll_s(due_s))
        except (LimitReached, HostBlocked, OperationalError) as error:
            log.info("poll skipped", channel=channel_id[:8], error=str(error))
            if isinstance(error, RequestsPaused):
                until_s = ceil(self._clock.wall_s() + error.paused_s)
                await self._on_events(LimitObserved(PollingLimit(channel_id, LimitReason.PAUSE, until_s=until_s)))
        finally:
            channel.is_polling = False

    def _get_polled(self, channel_id: ChannelId) -> tuple[Channel, int] | None:
        """Return a channel that this node polls, and how many nodes poll it; None for other channels."""
        channel = self._channels.get(channel_id)
        if channel is None or channel.poll_state is None:
            return None
        return channel.poll_state.channel, channel.assignment.schedule.size

    async def _get_state(self, channel_id: ChannelId) -> PollState | None:
        """Return the state for polling a channel, with its latest version; None if the channel does not exist.

        The channel may be one that this node does not poll on a schedule.
        """
        channel = self._channels.get(channel_id)
        if channel is None:
            (stored,), (count,) = await asyncio.gather(
                self._store.channels.states([channel_id]), self._store.channel_index.count([channel_id])
            )
            return build_poll_state(stored, count, self._clock.wall_s()) if stored else None
        if not channel.is_base_current:
            await self._load([channel_id])
        return channel.poll_state

    def _schedule(self, channel: _ScheduledChannel) -> None:
        """Set the time of a channel's next poll, based on its schedule."""
        assignment, after_s = channel.assignment, max(self._clock.wall_s(), channel.begun_s)
        due_s = assignment.schedule.next_poll_s(assignment.rank, after_s)
        self._queue.schedule(assignment.channel, due_s)
        self._queue_changed.set()

    async def _poll(self, state: PollState, before_s: float = inf) -> PollResult:
        """Poll a channel, record the result, and offer detected changes to the channel's owner.

        The request must begin by ``before_s`` (Unix s).
        """
        outcome = await self._poller.poll(state, self._node_id, before_s)
        result = outcome.result
        log.debug("poll completed", channel=state.channel.id[:8], outcome=result.outcome, status=result.status)
        self.health.on_polled(state.channel, result, outcome.permanent_url)
        events: list[Event] = [] if outcome.update is None else [self._record_update(outcome.update, result.took_s)]
        if is_success(result):
            events += self._changed_limits(state.channel.id, ceil(outcome.hint_s))
        if events:
            await self._on_events(*events)
        if outcome.topic:
            self._on_hubs_found(state.channel.id, outcome.hubs, outcome.topic)
        return result

    def _changed_limits(self, channel_id: ChannelId, hint_s: int) -> list[LimitObserved]:
        """Return the changes of a channel's polling limits after a successful poll, as events for the channel's owner.

        - The limits that were set because of failures or a pause are removed.
        - The limit that the publisher's hints set becomes ``hint_s``, the shortest interval in seconds between polls
          that the hints allow. 0 means no limit.

        Changes that the owner already knows are omitted.
        """
        # The poll ends the back-off for failures and the pause, if any.
        channel, now_s = self._channels.get(channel_id), self._clock.wall_s()
        known = channel.assignment.limits if channel else None
        return [
            LimitObserved(PollingLimit(channel_id, reason, interval_s))
            for reason, interval_s in ((LimitReason.FAILURE, 0), (LimitReason.PAUSE, 0), (LimitReason.HINT, hint_s))
            if known is None or known.is_outdated(reason, interval_s, 0, now_s)
        ]

    def _record_update(self, update: DetectedUpdate, took_s: float = 0.0) -> CandidateFound:
        """Keep detected changes until they are in a version; return the event that offers them to the channel's owner.

        ``took_s`` is the duration of the poll in seconds.
        """
        delta, began_s = update.candidate.delta, self._clock.wall_s() - took_s
        TRACING.record_step(
            delta.trace_id, FIRST_STEP, began_s, channel=delta.channel, node=self._node_id, changes=len(delta.changes)
        )
        if channel := self._channels.get(delta.channel):
            channel.update = update
        trace("The changes are sent to the owner of the channel, which creates a version.")
        return CandidateFound(update.candidate)

    async def _on_pushed(self, update: DetectedUpdate) -> None:
        await self._on_events(self._record_update(update))

    async def _compare_again(self, channel: _ScheduledChannel) -> None:
        """Compare the changes that this node last detected with the channel's current version.

        The current version contains changes that another node detected. Changes that this node detected but the version
        does not contain are offered to the channel's owner.
        """
        update, state = channel.update, channel.poll_state
        if update is None or state is None or update.candidate.base_version >= state.channel.version:
            return
        channel.update = None
        try:
            remaining = await self._poller.compare_again(state, update)
        except (PublisherError, OperationalError) as error:
            log.info("document comparison failed, will retry", channel=state.channel.id[:8], error=str(error))
            keep_unversioned(state, update.documents)
            return
        if remaining is not None:
            await self._on_events(self._record_update(remaining))
