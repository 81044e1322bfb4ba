"""The work of a channel's owner: takes over and moves channels, stores their versions, and starts fan-outs.

The owner of a channel (a feed or page) is the node nearest to the channel's id. A version is a numbered set of changes.
A fan-out queues a version for all subscribers. A failed write is repeated, either at the protocol's request or later by
this module. Every write can be repeated without harm:

- A repeated takeover increments the channel's epoch (the fencing token of the owner) once more.
- The store refuses a repeated publication, because the version on which it is based is no longer the latest.
- A repeated fan-out queues no message twice.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from math import ceil

import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.corona.events import (
    ChannelsChanged,
    Event,
    ListedChannel,
    MessageReceived,
    OwnershipTaken,
    Publish,
    PublishRefused,
    VersionPublished,
)
from service.corona.messages import ChannelRemoved
from service.corona.polling_limits import LimitReason, PollingLimits
from service.errors import LeaseLost, StaleVersion, StoreUnavailable
from service.feeds import canonical_urls
from service.location.content_cache import digest_of
from service.model import ChannelId, Delta, NodeId, Notice
from service.observability.tracing import TRACING
from service.store import Store
from service.store.channels.channel_records import ChannelState
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.dormancy import DormancyPolicy
from workers.ownership.fanout import FanOut
from workers.ownership.full_texts import ArticleReader, add_full_texts
from workers.ownership.registry_reader import RegistryReader, batches
from workers.peers.baseline_lookup import BaselineLookup
from workers.polling.politeness import charged_site, pausable_site
from workers.polling.poll_state import build_snapshot

log = structlog.get_logger(__name__)


class ChannelOwner:
    """Executes the actions (effects) that the polling protocol requests for the channels that one node owns.

    The results are passed to the protocol as events, through ``on_events``.
    """

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        *,
        clock: Clock,
        on_events: Callable[..., Awaitable[None]],
        tasks: BackgroundTasks,
        contents: BaselineLookup,
        fan_out: FanOut,
        registrar: DirectoryRegistrar,
        read_article: ArticleReader,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._clock = clock
        self._on_events = on_events
        self._tasks = tasks
        self._contents = contents
        self._fan_out = fan_out
        self._registrar = registrar
        self._read_article = read_article
        self._being_taken: set[ChannelId] = set()
        self._pending_fan_outs: dict[ChannelId, int] = {}
        """The epoch of each channel whose fan-out has to be started or continued."""
        self._running_fan_outs: set[ChannelId] = set()
        self._dormancy = DormancyPolicy(store)
        self.registry = RegistryReader(
            node_id,
            store,
            clock=clock,
            on_events=on_events,
            tasks=tasks,
            registrar=registrar,
            dormancy=self._dormancy,
        )

    async def expect_subscribers(self, channel_id: ChannelId) -> None:
        """Keep a channel for a minute even if it has no subscribers, because a user is about to subscribe."""
        now_s = self._clock.monotonic_s()
        self._dormancy.expect_subscribers(channel_id, now_s)
        await self._on_events(ChannelsChanged(now_s, (ListedChannel(channel_id, 0, listed=True),)))

    async def take_ownership(self, channel_ids: Sequence[ChannelId]) -> None:
        """Take over channels from their former owners, and pass the stored state of each channel to the protocol.

        - The epoch (fencing token) of each channel is incremented. From then on, the store refuses writes by the former
          owner.
        - Deliveries and moves that the former owner did not complete are continued, so that no entry is lost.

        Raises :class:`StoreUnavailable`; the protocol then requests the takeover again.
        """
        channel_ids = [channel_id for channel_id in channel_ids if channel_id not in self._being_taken]
        self._being_taken.update(channel_ids)
        try:
            for batch in batches(channel_ids):
                await self._take_batch(batch)
        except BaseException:
            self._being_taken.difference_update(channel_ids)
            raise

    async def _take_batch(self, channel_ids: Sequence[ChannelId]) -> None:
        states = await self._store.channels.adopt(channel_ids, self._node_id)
        sites = {pausable_site(state.channel.url) for state in states if state is not None}
        paused_s = await self._store.request_budgets.sites_paused_s(sorted(sites))
        self._being_taken.difference_update(channel_ids)
        events: list[Event] = []
        for channel_id, state in zip(channel_ids, states, strict=True):
            if state is None:
                events.append(MessageReceived("", ChannelRemoved(channel_id)))
                continue
            if state.channel.moved_to:
                self._being_taken.add(channel_id)  # until all subscribers have moved
                self._tasks.start(self._complete_move(state))
                continue
            if state.fanned_version < state.channel.version:
                self._start_fan_out(channel_id, state.epoch)
            channel = state.channel
            events.append(
                OwnershipTaken(
                    channel_id,
                    state.epoch,
                    channel.version,
                    private=channel.private,
                    updates=state.updates,
                    site=charged_site(channel),
                    limits=self._limits(state, paused_s[pausable_site(channel.url)]),
                )
            )
        if events:
            await self._on_events(*events)

    async def _complete_move(self, moved: ChannelState) -> None:
        """Complete a channel's move to another URL: notify the subscribers, move them, and release the old channel.

        ``moved`` is the stored state of the old channel.
        """
        channel_id = moved.channel.id
        try:
            if await self._fan_out.run(channel_id, moved.epoch):
                await self._store.channel_moves.carry_out(moved, self._clock.wall_s())
                log.info("channel moved to new url", channel=channel_id[:8], new_channel=moved.channel.moved_to[:8])
        except StoreUnavailable as error:
            log.warning("moving channel to new url interrupted, will resume", channel=channel_id[:8], error=str(error))
            # Until the next node takes ownership and repeats it.
            self._dormancy.expect_subscribers(channel_id, self._clock.monotonic_s())
        finally:
            self._being_taken.discard(channel_id)
        # An incomplete move is repeated after the next listing.
        await self._on_events(MessageReceived("", ChannelRemoved(channel_id)))

    def _limits(self, state: ChannelState, site_paused_s: float) -> PollingLimits:
        """Return the limits on polling a channel whose site is paused for another ``site_paused_s`` seconds."""
        limits = state.polling_limits()
        until_s = ceil(self._clock.wall_s() + site_paused_s) if site_paused_s else 0
        return limits.with_limit(LimitReason.PAUSE, 0, until_s) if until_s > limits.paused_until_s else limits

    def release(self, channel_id: ChannelId) -> None:
        """Discard this node's state for a channel that another node now owns, or that has no subscribers."""
        self._pending_fan_outs.pop(channel_id, None)
        self._registrar.remove(channel_id)

    async def publish(self, effect: Publish) -> None:
        """Store the changes in ``effect`` as a new version of their channel, and start queueing it for the subscribers.

        The changes were detected in a poll by this or another node. The result is passed to the protocol.
        """
        candidate = effect.candidate
        delta, notice = candidate.delta, candidate.delta.notice
        began_s = self._clock.wall_s()
        try:
            before = await self._store.channels.predecessor(candidate.channel, delta.base_version)
            if before.full_texts_until_s > began_s and not delta.initial:
                delta = await add_full_texts(delta, self._read_article, is_private=b"private" in before.fields)
            after = None if notice else build_snapshot(candidate, before.latest, effect.updates)
            delta = await self._store.channels.publish(delta, after, effect.epoch, silent=delta.initial, before=before)
        except (LeaseLost, StaleVersion, StoreUnavailable) as error:
            # If the store failed, the version may have been written: the next takeover reads the current version.
            log.info("channel version rejected by store", channel=candidate.channel[:8], error=str(error))
            await self._on_events(PublishRefused(candidate.channel, effect.epoch))
            return
        version, count = delta.version, len(delta.changes)
        TRACING.record_step(delta.trace_id, "versioned", began_s, channel=delta.channel, version=version, changes=count)
        if notice and notice.kind == "moved":
            # The node that takes ownership next completes the move, also if this one dies.
            await self._on_events(PublishRefused(candidate.channel))
            return
        self._registrar.on_changed(candidate.channel)
        self._start_fan_out(candidate.channel, effect.epoch)
        digest = b""
        if after and not canonical_urls.reader_of(before.url):  # contents of protected channels are not exchanged
            digest = digest_of(after.content)
            self._contents.put(candidate.channel, digest, after.content)
        await self._on_events(VersionPublished(candidate.channel, delta.version, digest))

    async def move(self, channel_id: ChannelId, url: str) -> bool:
        """Move a channel to another URL, and notify its subscribers. Repeating the call has no further effect.

        Return False if the channel does not exist, or has already moved to a different URL.
        """
        while True:
            (state,) = await self._store.channels.adopt([channel_id], self._node_id)
            if state is None or state.channel.moved_to not in {"", canonical_urls.channel_id(url)}:
                return False
            if state.channel.moved_to:
                break
            now_s = self._clock.wall_s()
            delta = Delta(channel_id, state.channel.version, 0, now_s, (), notice=Notice("moved", url))
            with contextlib.suppress(LeaseLost, StaleVersion):  # another node took ownership, or published
                await self._store.channels.publish(delta, None, state.epoch, silent=False)
        # This node's protocol does not know the new epoch. The node that takes ownership next completes the move.
        await self._on_events(PublishRefused(channel_id))
        await self.expect_subscribers(channel_id)
        return True

    def retry_fan_outs(self) -> None:
        """Continue the deliveries that were interrupted because the store was unavailable.

        A delivery queues a new version of a channel for its recipients.
        """
        for channel_id in self._pending_fan_outs.keys() - self._running_fan_outs:
            self._tasks.start(self._run_fan_out(channel_id))

    def _start_fan_out(self, channel_id: ChannelId, epoch: int) -> None:
        self._pending_fan_outs[channel_id] = epoch
        self._tasks.start(self._run_fan_out(channel_id))

    async def _run_fan_out(self, channel_id: ChannelId) -> None:
        if channel_id in self._running_fan_outs:
            return  # the running task also executes the pending fan-out
        self._running_fan_outs.add(channel_id)
        try:
            while (epoch := self._pending_fan_outs.pop(channel_id, None)) is not None:
                try:
                    is_owner = await self._fan_out.run(channel_id, epoch)
                except StoreUnavailable as error:
                    log.warning("fan-out interrupted", channel=channel_id[:8], error=str(error))
                    self._pending_fan_outs.setdefault(channel_id, epoch)
                    return
                if not is_owner:
                    # Another node took ownership, perhaps wrongly. If this node is still the nearest, it takes
                    # ownership again.
                    await self._on_events(PublishRefused(channel_id, epoch))
        finally:
            self._running_fan_outs.discard(channel_id)
