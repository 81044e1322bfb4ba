"""A worker's part in the exchange of contents: contents, finder and overlay, and what other workers may ask.

A request that is not sealed, of now, new, and small is refused and counted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import msgspec
import structlog
from aiohttp import web

from service.clock import Clock
from service.errors import PeerProtocolError
from service.location.content_cache import ContentCache, encode
from service.location.neighbours import NeighbourLimits
from service.location.wire import Batch
from service.model import ChannelId, NodeId, NodeInfo
from service.net.http_server import client_of
from service.net.peer_client import MAX_REQUEST_BYTES, REFUSED, RESTART_STREAM, Peer, PeerClient, peer_of
from service.net.request_signatures import SIGNATURE_HEADER, RequestSigner, parse_signature
from service.observability.metrics import PEER_REFUSALS
from service.overlay.ring import RingView
from service.settings import Settings
from service.store.channels.channels import Channels
from workers.peers.content_cache import EXPIRY_S, ContentLocator
from workers.peers.content_finder import FIND, HERE, NOWHERE, ContentFinder, asked, onward
from workers.peers.neighbour_overlay import PING, TELL, NeighbourOverlay
from workers.tasks import BackgroundTasks

Answerer = Callable[[NodeId, bytes], bytes]
"""Maps (sender, request) to a response. May raise :class:`PeerProtocolError`; the reason ``stream`` means: restart."""

log = structlog.get_logger(__name__)

_batch = msgspec.msgpack.Decoder(Batch)


class ContentExchange:
    """This worker among others; without a cluster's secret, alone. Use as an async context manager."""

    def __init__(self, settings: Settings, channels: Channels, clock: Clock) -> None:
        """Be alone, and tell everybody that there is nothing here."""
        self._settings = settings
        self._channels = channels
        self._clock = clock
        self._ahead_s = clock.wall_s() - clock.monotonic_s()
        self._ring = RingView(-1, ())
        self._changed = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._cache = ContentCache(settings.content_cache_bytes, EXPIRY_S)
        self._me: NodeId = ""
        self._signer: RequestSigner | None = None
        self._client: PeerClient | None = None
        self._overlay: NeighbourOverlay | None = None
        self._answerers: Mapping[str, Answerer] = {PING: _pong, TELL: self._told, FIND: self._found}
        self.contents = ContentLocator(channels, self._cache, clock)

    def begin(self, me: NodeInfo) -> None:
        """Be the process that ``me`` is a node of, from now on."""
        worker, secret = peer_of(me), self._settings.cluster_secret.get_secret_value()
        if worker is not None and secret:
            self._begin(worker, RequestSigner(secret, worker.id))

    def _begin(self, me: Peer, signer: RequestSigner) -> None:
        self._me, self._signer, self._client = me.id, signer, PeerClient(signer, self.fleet_s)
        limits = NeighbourLimits(near_s=self._settings.near_rtt_s)
        self._overlay = NeighbourOverlay(
            me.id, limits, self._client, clock=self._clock, tasks=self._tasks, have=self._have
        )
        finder = ContentFinder(self._client, self._clock, self._overlay, self._owner)
        self.contents = ContentLocator(self._channels, self._cache, self._clock, finder.find, self._overlay.changed)

    def routes(self) -> list[web.RouteDef]:
        """Return where others come to."""
        return [web.post("/peers/{worker}/{verb}", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if self._signer is None or request.match_info["worker"] != self._me or verb not in self._answerers:
            raise web.HTTPNotFound
        try:
            return await self._answered(request, verb, self._signer)
        except PeerProtocolError as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.info("another worker is refused", at=client_of(request).address, why=str(error))
            return web.Response(status=REFUSED)

    async def _answered(self, request: web.Request, verb: str, signer: RequestSigner) -> web.Response:
        signature = parse_signature(request.headers.get(SIGNATURE_HEADER, ""))
        signer.check_time(signature, self.fleet_s())
        body = await _bounded(request)
        signer.verify(signature, verb, body, self.fleet_s())
        status, answer = 200, b""
        try:
            answer = self._answerers[verb](signature.sender, body)
        except PeerProtocolError as error:
            if error.reason != "stream":
                raise
            PEER_REFUSALS.labels(error.reason).inc()
            status = RESTART_STREAM
        return web.Response(
            status=status, body=answer, headers={SIGNATURE_HEADER: signer.response_mac(signature.nonce, status, answer)}
        )

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
                async with asyncio.timeout(self._settings.maintenance_interval_s):
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
            raise PeerProtocolError(f"What {sender[:8]} says cannot be read: {error}.", reason="malformed") from error
        self._overlay.heard(sender, batch)
        return b""

    def _found(self, sender: NodeId, body: bytes) -> bytes:
        digest, query = asked(body)
        content = self._cache.get(digest, self._clock.monotonic_s())
        if content is not None:
            return b"".join((HERE, *encode(content)))
        step = self._overlay.next(query) if self._overlay is not None and sender in query.visited else None
        return onward(*step) if step else NOWHERE


async def _bounded(request: web.Request) -> bytes:
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > MAX_REQUEST_BYTES:
            raise PeerProtocolError(f"A request has more than {MAX_REQUEST_BYTES} bytes.", reason="size")
    return bytes(body)


def _pong(_sender: NodeId, _body: bytes) -> bytes:
    return b""
