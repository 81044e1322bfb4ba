"""A worker's part in the exchange of contents, wired: contents, finder, overlay, and the door for others."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

import msgspec

from service.clock import Clock
from service.errors import PeerRefused
from service.location.cache import Cache
from service.location.contents import Digest, encode
from service.location.neighbours import Limits
from service.location.streams import Batch
from service.model import ChannelId, NodeId, NodeInfo
from service.net.peers import Peer, PeerClient, peer_of
from service.net.seals import Sealer
from service.overlay.ring import RingView
from service.settings import Settings
from service.store.channels import Channels
from workers.peers.contents import KEPT_S, Contents, Handed
from workers.peers.door import Door
from workers.peers.finding import FIND, HERE, NOWHERE, Finder, asked, onward
from workers.peers.overlay import PING, Overlay
from workers.peers.posting import TELL
from workers.tasks import Tasks

_batch = msgspec.msgpack.Decoder(Batch)


class Peers:
    """This worker among others; without a cluster's secret, alone. Use as an async context manager."""

    def __init__(self, me: NodeInfo, settings: Settings, channels: Channels, clock: Clock, door: Door) -> None:
        """Be the process that ``me`` is a node of, reached through ``door``."""
        self._clock = clock
        self._interval_s = settings.maintenance_interval_s
        self._ahead_s = clock.wall_s() - clock.monotonic_s()
        self._ring = RingView(-1, ())
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._cache = Cache(settings.content_cache_bytes, KEPT_S)
        self._client: PeerClient | None = None
        self._overlay: Overlay | None = None
        self.contents = Contents(channels, self._cache, clock)
        worker, secret = peer_of(me), settings.cluster_secret.get_secret_value()
        if worker is not None and secret:
            self._begin(worker, secret, Limits(near_s=settings.near_rtt_s), channels, door)

    def _begin(self, me: Peer, secret: str, limits: Limits, channels: Channels, door: Door) -> None:
        sealer = Sealer(secret, me.id)
        self._me = me.id
        self._client = PeerClient(sealer, self.fleet_s)
        self._overlay = overlay = Overlay(
            me.id, limits, self._client, clock=self._clock, tasks=self._tasks, have=self._have
        )
        finder = Finder(self._client, self._clock, first=overlay.first, peer=overlay.peer, owner=self._owner)
        self.contents = Contents(channels, self._cache, self._clock, _Others(finder, overlay))
        door.open(me.id, sealer, self.fleet_s, {PING: _pong, TELL: self._told, FIND: self._found})

    async def __aenter__(self) -> Self:
        """Keep up, in the background, until the end."""
        if self._client is not None:
            await self._client.__aenter__()
        self._tasks.start(self._keep_up())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say nothing any more."""
        if self._overlay is not None:
            self._overlay.close()
        await self._tasks.cancel()
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    def fleet_s(self) -> float:
        """Return the fleet's common time (Unix s)."""
        return self._clock.monotonic_s() + self._ahead_s

    def set_fleet_time(self, fleet_s: float, at_monotonic_s: float) -> None:
        """Take over the fleet's common time as it was at a moment of ours."""
        self._ahead_s = fleet_s - at_monotonic_s

    def ring_changed(self, ring: RingView) -> None:
        """Know who is there now. Several nodes of a worker may say so."""
        if ring.version > self._ring.version:
            self._ring = ring
            if self._overlay is not None:
                self._overlay.meet(peer for info in ring.nodes if (peer := peer_of(info)))
                self._changed.set()

    async def _keep_up(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._changed.wait()
            self._changed.clear()
            self.contents.expire()
            if self._overlay is not None:
                await self._overlay.keep_up()

    def _have(self) -> list[str]:
        return [digest.hex() for digest in self._cache.digests]

    def _owner(self, cid: ChannelId) -> Peer | None:
        owner = self._ring.owner(cid)
        peer = next((peer_of(info) for info in self._ring.nodes if info.id == owner), None)
        return None if peer is None or peer.id == self._me else peer

    def _told(self, sender: NodeId, body: bytes) -> bytes:
        if self._overlay is None:
            return b""
        try:
            batch = _batch.decode(body)
        except msgspec.MsgspecError as error:
            raise PeerRefused(f"What {sender[:8]} says cannot be read: {error}.", reason="malformed") from error
        self._overlay.heard(sender, batch)
        return b""

    def _found(self, sender: NodeId, body: bytes) -> bytes:
        digest, query = asked(body)
        content = self._cache.get(digest, self._clock.monotonic_s())
        if content is not None:
            return b"".join((HERE, *encode(content)))
        step = self._overlay.next(query) if self._overlay is not None and sender in query.visited else None
        return onward(*step) if step else NOWHERE


class _Others:
    """All other workers, as contents look for them."""

    def __init__(self, finder: Finder, overlay: Overlay) -> None:
        self._finder = finder
        self._overlay = overlay
        self.changed = overlay.changed

    async def find(self, cid: ChannelId, digest: Digest) -> Handed | None:
        await self._overlay.settled()
        return await self._finder.find(cid, digest)


def _pong(_sender: NodeId, _body: bytes) -> bytes:
    return b""
