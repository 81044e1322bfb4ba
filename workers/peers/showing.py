"""What people are shown of a channel's content, and where it came from."""

import contextlib
import time

from service.errors import PublisherError, UserError
from service.feeds.wire import Examine
from service.location.contents import unpacked
from service.model import Channel, ChannelId, Entry, Validators
from service.net.peers import peer_of
from service.overlay.ring import RingView
from service.store import Store
from service.store.requests import Shown
from workers.courtesy import public_group
from workers.lanes import Lanes
from workers.peers.contents import Contents, Located
from workers.poller import Poller, document
from workers.watch import Watch

_FETCHED_WITHIN_S = 5.0


class Showing:
    """Shows contents on behalf of the node that was asked."""

    def __init__(self, store: Store, contents: Contents, poller: Poller, lanes: Lanes) -> None:
        """Locate in ``contents``; at last resort fetch as ``poller`` does, and read in lanes of probes."""
        self._store = store
        self._contents = contents
        self._poller = poller
        self._lanes = lanes

    async def show(self, cid: ChannelId, ring: RingView) -> Shown | None:
        """Return a channel's latest entries; None if there is no such channel."""
        (state,) = await self._store.channels.states([cid])
        if state is None:
            return None
        located = await self._contents.locate(cid, state.channel.version, state.digest)
        latest = unpacked(located.content.latest)
        if located.source == "publisher":
            latest = await self._fetched(state.channel)
        elif not latest:
            latest = await self._store.channels.newest(cid)
        return Shown(located.version, latest, located.source, located.hops, _name(located, ring))

    async def _fetched(self, channel: Channel) -> tuple[Entry, ...]:
        with contextlib.suppress(PublisherError, UserError):
            async with self._lanes.room(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _FETCHED_WITHIN_S)
                job = Examine((document(fetched),), b"", channel.url, channel.kind, time.time())
                watch = Watch(channel, Validators(), 0, address_group=public_group(fetched.address))
                return (await self._lanes.examine(job, watch, _FETCHED_WITHIN_S)).latest
        return ()


def _name(located: Located, ring: RingView) -> str:
    workers = ((peer_of(info), info.name) for info in ring.nodes)
    return next((name for peer, name in workers if peer and peer.id == located.worker), "")
