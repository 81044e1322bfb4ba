"""What a node does as the owner of channels: adopt them, version deltas, and have them fanned out.

What the store does not take now is tried again: a repeated adoption only raises the epoch once
more, a repeated publication is refused by its base version, a repeated fan-out queues nothing twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog

from service.clock import Clock
from service.corona.events import (
    ChannelsListed,
    Event,
    ListedChannel,
    ListOwnedChannels,
    MessageReceived,
    OwnershipTaken,
    Publish,
    PublishRefused,
    VersionPublished,
)
from service.corona.messages import ChannelRemoved
from service.errors import LeaseLost, StaleVersion, StoreUnavailable
from service.feeds.urls import channel_id
from service.location.content_cache import digest_of
from service.model import ChannelId, Delta, NodeId, Notice
from service.observability.tracing import TRACING
from service.overlay.ring import RingView, owned_prefixes
from service.store import Store
from service.store.channels.channels import ChannelState
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut
from workers.peers.content_cache import ContentLocator
from workers.polling.politeness import charged_site
from workers.polling.poll_state import build_snapshot
from workers.tasks import BackgroundTasks

_BUCKETS_AT_ONCE = 8
_CHANNELS_AT_ONCE = 500
_RETRY_S = 1.0
_WANTED_AFTER_PROBE_S = 60.0

log = structlog.get_logger(__name__)


class ChannelOwner:
    """A node's own channels. ``happened`` tells the protocol how things went."""

    def __init__(
        self,
        me: NodeId,
        store: Store,
        *,
        clock: Clock,
        happened: Callable[..., Awaitable[None]],
        tasks: BackgroundTasks,
        contents: ContentLocator,
        fan_out: FanOut,
        naming: DirectoryRegistrar,
    ) -> None:
        self._me = me
        self._store = store
        self._clock = clock
        self._happened = happened
        self._tasks = tasks
        self._contents = contents
        self._fanout = fan_out
        self._naming = naming
        self._view = RingView(0, ())
        self._prefixes: tuple[str, ...] = ()
        self._adopting: set[ChannelId] = set()
        self._asked: ListOwnedChannels | None = None
        self._walking = False
        self._unfinished: dict[ChannelId, int] = {}
        """The epochs under which fan-outs are to go on."""
        self._fanning_out: set[ChannelId] = set()
        self._expected_s: dict[ChannelId, float] = {}

    def ring_changed(self, view: RingView) -> None:
        """Look for our channels where they may be now."""
        self._view = view
        self._prefixes = owned_prefixes(view, self._me)

    async def expect_subscribers(self, cid: ChannelId) -> None:
        """Own this channel for a while even without subscribers: somebody is about to subscribe."""
        now_s = self._clock.monotonic_s()
        self._expected_s[cid] = now_s
        # As an answer to no question (asked at minus infinity) it makes the protocol drop nothing.
        await self._happened(ChannelsListed(float("-inf"), (ListedChannel(cid, 0, listed=True),)))

    async def adopt(self, cids: Sequence[ChannelId]) -> None:
        """Raise the channels' epochs, tell the protocol, and resume fan-outs and moves that the former owner left."""
        cids = [cid for cid in cids if cid not in self._adopting]
        self._adopting.update(cids)
        try:
            for some in _stretches(cids):
                await self._adopt(some)
        except BaseException:
            self._adopting.difference_update(cids)
            raise

    async def _adopt(self, cids: Sequence[ChannelId]) -> None:
        states = await self._surely_adopted(cids)
        self._adopting.difference_update(cids)
        events: list[Event] = []
        for cid, state in zip(cids, states, strict=True):
            if state is None:
                events.append(MessageReceived("", ChannelRemoved(cid)))
                continue
            if state.channel.moved_to:
                self._adopting.add(cid)  # until everybody has moved
                self._tasks.start(self._give_up(state))
                continue
            if state.fanned < state.channel.version:
                self._fan_out_soon(cid, state.epoch)
            channel = state.channel
            events.append(
                OwnershipTaken(
                    cid,
                    state.epoch,
                    channel.version,
                    private=channel.private,
                    updates=state.updates,
                    site=charged_site(channel),
                )
            )
        if events:
            await self._happened(*events)

    async def _give_up(self, moved: ChannelState) -> None:
        """Tell a channel's subscribers that it has moved, have them follow, and own it no more."""
        cid = moved.channel.id
        try:
            if await self._fanout.run(cid, moved.epoch):
                await self._store.channel_moves.carry_out(moved, self._clock.wall_s())
                log.info("channel moved", channel=cid[:8], to=moved.channel.moved_to[:8])
        except StoreUnavailable as error:
            log.warning("move interrupted", channel=cid[:8], error=str(error))
        finally:
            self._adopting.discard(cid)
        # If it is not through, the next walk of the registry finds it.
        await self._happened(MessageReceived("", ChannelRemoved(cid)))

    async def _surely_adopted(self, cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        while True:
            try:
                return await self._store.channels.adopt(cids, self._me)
            except StoreUnavailable as error:
                log.warning("adopting failed", channels=len(cids), error=str(error))
                await asyncio.sleep(_RETRY_S)

    def disown(self, cid: ChannelId) -> None:
        """Forget a channel that another node owns now, or nobody wants."""
        self._unfinished.pop(cid, None)
        self._naming.forget(cid)

    async def publish(self, effect: Publish) -> None:
        """Version a candidate, tell the protocol, and fan out."""
        offered = effect.candidate
        notice = offered.delta.notice
        began_s = self._clock.wall_s()
        try:
            before = () if notice else await self._store.channels.content_entries(offered.channel)
            after = None if notice else build_snapshot(offered, before, effect.updates)
            delta = await self._store.channels.publish(offered.delta, after, effect.epoch, silent=offered.delta.initial)
        except (LeaseLost, StaleVersion, StoreUnavailable) as error:
            # When the store failed, it may have been written: adopting again tells.
            log.info("delta refused", channel=offered.channel[:8], why=str(error))
            await self._happened(PublishRefused(offered.channel))
            return
        TRACING.record_step(
            delta.trace_id,
            "versioned",
            began_s,
            channel=delta.channel,
            version=delta.version,
            changes=len(delta.changes),
        )
        if notice and notice.kind == "moved":
            # Whoever adopts it now carries out the move: if we do not live to, another node does.
            await self._happened(PublishRefused(offered.channel))
            return
        self._naming.news_of(offered.channel)
        self._fan_out_soon(offered.channel, effect.epoch)
        digest = b""
        if after:
            digest = digest_of(after.content)
            self._contents.put(offered.channel, digest, after.content)
        await self._happened(VersionPublished(offered.channel, delta.version, digest))

    async def move(self, cid: ChannelId, url: str) -> bool:
        """Have a channel's subscribers told that it is watched at ``url`` from now on, and move there.

        Can be repeated. Returns False if there is no such channel, or it moves elsewhere.
        """
        while True:
            (state,) = await self._store.channels.adopt([cid], self._me)
            if state is None or state.channel.moved_to not in {"", channel_id(url)}:
                return False
            if state.channel.moved_to:
                break
            now_s = self._clock.wall_s()
            told = Delta(cid, state.channel.version, 0, now_s, (), notice=Notice("moved", url))
            with contextlib.suppress(LeaseLost, StaleVersion):  # somebody else adopted it, or knew the old epoch
                await self._store.channels.publish(told, None, state.epoch, silent=False)
        # Our own protocol does not know of that epoch. Whoever adopts it now carries out the move.
        await self._happened(PublishRefused(cid))
        await self.expect_subscribers(cid)
        return True

    async def list_owned(self, asked: ListOwnedChannels) -> None:
        """Walk our part of the registry; channels that nobody wants doze from now on.

        While a walk is under way, only the latest of those asked for comes after it.
        """
        self._asked = asked
        if self._walking:
            return
        self._walking = True
        try:
            while self._asked is not None:
                asked, self._asked = self._asked, None
                await self._walk(asked)
        except StoreUnavailable as error:
            log.warning("registry unreadable", error=str(error))
        finally:
            self._walking = False

    async def _walk(self, asked: ListOwnedChannels) -> None:
        prefixes = self._prefixes
        for start in range(0, len(prefixes), _BUCKETS_AT_ONCE):
            registered = await self._store.channels.ids_in_buckets(prefixes[start : start + _BUCKETS_AT_ONCE])
            mine = [cid for cid in registered if self._view.is_among_nearest(cid, self._me, 1)]
            for some in _stretches(mine):
                listed = await self._listed(some)
                await self._happened(ChannelsListed(asked.requested_s, tuple(listed), complete=False))
        self._naming.walked()
        await self._happened(ChannelsListed(asked.requested_s, ()))

    async def _listed(self, cids: Sequence[ChannelId]) -> list[ListedChannel]:
        counts = await self._store.subscriptions.counts(list(cids))
        self._tasks.start(self._name(list(zip(cids, counts, strict=True))))
        wanted = await self._wanted_or_dozing([cid for cid, count in zip(cids, counts, strict=True) if not count])
        return [ListedChannel(cid, count, cid in wanted) for cid, count in zip(cids, counts, strict=True)]

    async def _name(self, counted: Sequence[tuple[ChannelId, int]]) -> None:
        try:
            await self._naming.keep(counted)
        except StoreUnavailable as error:
            log.warning("naming was interrupted", channels=len(counted), error=str(error))

    async def _wanted_or_dozing(self, lonely: Sequence[ChannelId]) -> set[ChannelId]:
        now_s = self._clock.monotonic_s()
        self._expected_s = {cid: at_s for cid, at_s in self._expected_s.items() if now_s - at_s < _WANTED_AFTER_PROBE_S}
        wanted = set(self._expected_s)
        for channel in await self._store.channels.get_many(lonely):
            if channel is None or channel.id in wanted:
                continue
            if channel.listed or (channel.moved_to and not channel.dormant):
                wanted.add(channel.id)
            elif not channel.dormant:
                await self._store.channels.mark_dormant(channel.id)
                await self._store.poll_rate_history.record([(channel.id, 0.0)])
        return wanted

    def retry_fan_outs(self) -> None:
        """Go on with what the store interrupted."""
        for cid in self._unfinished.keys() - self._fanning_out:
            self._tasks.start(self._fan_out(cid))

    def _fan_out_soon(self, cid: ChannelId, epoch: int) -> None:
        self._unfinished[cid] = epoch
        self._tasks.start(self._fan_out(cid))

    async def _fan_out(self, cid: ChannelId) -> None:
        if cid in self._fanning_out:
            return  # the one under way looks again before it ends
        self._fanning_out.add(cid)
        try:
            while (epoch := self._unfinished.pop(cid, None)) is not None:
                try:
                    done = await self._fanout.run(cid, epoch)
                except StoreUnavailable as error:
                    log.warning("fan-out interrupted", channel=cid[:8], error=str(error))
                    self._unfinished.setdefault(cid, epoch)
                    return
                if not done:
                    # Another owner, who may be wrong or dead by now: if it is still ours, it has to be adopted again.
                    await self._happened(PublishRefused(cid))
        finally:
            self._fanning_out.discard(cid)


def _stretches(cids: Sequence[ChannelId]) -> Iterator[Sequence[ChannelId]]:
    """Cut up a list of channels, in order: what is known of all of them must never be in memory at once."""
    return (cids[start : start + _CHANNELS_AT_ONCE] for start in range(0, len(cids), _CHANNELS_AT_ONCE))
