"""Reader of the channel registry in the store, which finds the channels (feeds and pages) that a node owns.

The owner of a channel is the node of the ring nearest to the channel's id. After the ring has changed, the node reads
its parts of the registry completely. At other times, it reads only channels that have changed. In addition, it rereads
each part once every half hour.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.corona.events import ChannelsChanged, ChannelsListed, ListedChannel, ListOwnedChannels
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView, owned_prefixes
from service.store import Store
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.dormancy import DormancyPolicy

_BUCKETS_PER_READ = 8
_BATCH_SIZE = 500
_FULL_LISTING_INTERVAL_S = 1800.0
"""Seconds in which the whole channel registry is read again, in parts, in case a crash has prevented the recording of a
change."""


class RegistryReader:
    """Lists the channels that one node owns, and passes them to the protocol through ``on_events``."""

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        *,
        clock: Clock,
        on_events: Callable[..., Awaitable[None]],
        tasks: BackgroundTasks,
        registrar: DirectoryRegistrar,
        dormancy: DormancyPolicy,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._clock = clock
        self._on_events = on_events
        self._tasks = tasks
        self._registrar = registrar
        self._dormancy = dormancy
        self._ring = RingView(0, ())
        self._prefixes: tuple[str, ...] = ()
        self._last_change: int | None = None
        """Sequence number of the last registry change that was processed; None if the whole registry has to be read."""
        self._listing: tuple[Sequence[str], float, int] = (), 0.0, 0
        """The parts of the registry to reread, when this began (monotonic time), and how many parts have been read."""
        self._list_request: ListOwnedChannels | None = None
        self._is_listing = False

    def on_ring_changed(self, ring: RingView) -> None:
        """Determine in which parts of the channel registry this node owns channels, according to the new ring."""
        # If these parts may have changed, the next listing of the registry is a full one.
        before, self._ring = self._ring.branchings(self._node_id), ring
        if ring.branchings(self._node_id) != before:
            self._prefixes = owned_prefixes(ring, self._node_id)
            self._last_change = None

    async def list_owned(self, request: ListOwnedChannels) -> None:
        """Pass the channels that this node owns to the protocol. Channels that nobody needs are marked as dormant.

        Dormant channels are not polled. If several requests arrive during a listing, only the latest of these requests
        is answered. Raises :class:`StoreUnavailable`; the protocol then requests another listing.
        """
        self._list_request = request
        if self._is_listing:
            return
        self._is_listing = True
        try:
            while self._list_request is not None:
                request, self._list_request = self._list_request, None
                await self._list(request)
                self._tasks.start(self._registrar.register_due())
        finally:
            self._is_listing = False

    async def _list(self, request: ListOwnedChannels) -> None:
        """Pass the changed channels of this node to the protocol, or all channels if changes may have been missed."""
        number, now_s = self._last_change, self._clock.monotonic_s()
        expected = self._dormancy.take_expected(now_s)
        if number is not None:
            changed, last_change = await self._store.registry_changes.after(number)
            if changed is not None:
                await self._list_changed(request, {*changed, *expected})
                if self._last_change == number:  # otherwise the ring has changed meanwhile
                    self._last_change = last_change
                    await self._list_again(request.requested_s)
                return
        prefixes, last_change = self._prefixes, await self._store.registry_changes.last_number()
        await self._list_registry(request.requested_s, prefixes)
        await self._on_events(ChannelsListed(request.requested_s, ()))
        if prefixes is self._prefixes:
            self._last_change, self._listing = last_change, (prefixes, request.requested_s, 0)

    async def _list_again(self, now_s: float) -> None:
        """Reread the parts of the registry that are due at ``now_s`` (seconds of the monotonic clock)."""
        # The whole registry is read in this way in ``_FULL_LISTING_INTERVAL_S``. After its last part, this begins anew.
        prefixes, begun_s, done = self._listing
        end = min(int((now_s - begun_s) / _FULL_LISTING_INTERVAL_S * len(prefixes)), len(prefixes))
        await self._list_registry(begun_s, prefixes[done:end])
        if end == len(prefixes):
            await self._on_events(ChannelsListed(begun_s, ()))
            begun_s, end = now_s, 0
        self._listing = prefixes, begun_s, end

    async def _list_changed(self, request: ListOwnedChannels, channel_ids: Iterable[ChannelId]) -> None:
        owned = [channel_id for channel_id in channel_ids if self._ring.is_among_nearest(channel_id, self._node_id, 1)]
        for batch in batches(owned):
            await self._on_events(ChannelsChanged(request.requested_s, tuple(await self._list_batch(batch))))

    async def _list_registry(self, requested_s: float, prefixes: Sequence[str]) -> None:
        """Read parts of the registry, and pass this node's channels in these parts to the protocol.

        - ``requested_s``: when the listing was requested (seconds of the monotonic clock).
        - ``prefixes``: the parts, given as prefixes of channel ids.
        """
        owned: list[ChannelId] = []  # first all of them, because polls are planned by their number
        for start in range(0, len(prefixes), _BUCKETS_PER_READ):
            registered = await self._store.channels.ids_in_buckets(prefixes[start : start + _BUCKETS_PER_READ])
            owned += [each for each in registered if self._ring.is_among_nearest(each, self._node_id, 1)]
        for batch in batches(owned):
            listed = await self._list_batch(batch)
            await self._on_events(ChannelsListed(requested_s, tuple(listed), complete=False, total=len(owned)))

    async def _list_batch(self, channel_ids: Sequence[ChannelId]) -> list[ListedChannel]:
        counts = await self._store.channel_index.count(list(channel_ids))
        counted = list(zip(channel_ids, counts, strict=True))
        await self._registrar.schedule_changed(counted)
        needed = await self._dormancy.needed_without_subscribers(
            [channel_id for channel_id, count in counted if not count]
        )
        return [ListedChannel(channel_id, count, channel_id in needed) for channel_id, count in counted]


def batches(channel_ids: Sequence[ChannelId]) -> Iterator[Sequence[ChannelId]]:
    """Split channel ids into batches, because the states of all channels would take too much memory at once."""
    return (channel_ids[start : start + _BATCH_SIZE] for start in range(0, len(channel_ids), _BATCH_SIZE))
