"""The HTTP endpoint for other workers, and the parts of this worker that exchange data and messages with them.

The endpoint refuses requests that are unsigned, too old, repeated or too large, and counts them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
import structlog
from aiohttp import web

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.errors import PeerProtocolError
from service.location.content_cache import ContentCache, encode
from service.location.messages import StreamBatch
from service.location.neighbour_choice import NeighbourLimits
from service.model import ChannelId, NodeId
from service.net.http_server import client_of
from service.net.peer_client import MAX_REQUEST_BYTES, REFUSED, RESTART_STREAM, Peer, PeerClient, peer_of
from service.net.peer_request_signatures import SIGNATURE_HEADER, RequestSigner, parse_signature
from service.observability.metrics import PEER_REFUSALS
from service.overlay.ring import RingView
from service.settings import Settings
from service.store import Store
from service.tick_timer import TickTimer
from workers.peers.baseline_lookup import EXPIRY_S, BaselineLookup
from workers.peers.neighbour_overlay import PING, NeighbourOverlay
from workers.peers.node_message_transport import NODE_MESSAGES_VERB, NodeMessageTransport
from workers.peers.peer_content_search import FIND, FOUND, NOT_FOUND, PeerContentSearch, decode_query, encode_referral
from workers.peers.peer_stream import STREAM_VERB

VerbHandler = Callable[[NodeId, bytes], bytes]
"""Maps (sender's id, request body) to a response body. May raise :class:`PeerProtocolError`. If the reason of this
error is ``stream``, the sender has to restart its stream."""

log = structlog.get_logger(__name__)

_batch = msgspec.msgpack.Decoder(StreamBatch)


class PeerEndpoint:
    """Handles requests from other workers, and creates the objects that send requests to other workers.

    Without a cluster secret, nothing is sent to other workers. Data then comes only from the cache and the store, and
    messages go through inboxes in the store.
    """

    def __init__(self, settings: Settings, store: Store, clock: Clock, timer: TickTimer, worker: Peer) -> None:
        """Create the endpoint for ``worker``, with an empty cache and without any other workers yet.

        - ``clock``: returns the time that all workers share, which is used to sign requests.
        - ``timer``: the timer for all periodic tasks of this process.
        """
        secret = settings.cluster_secret.get_secret_value()
        self._has_secret = bool(secret)
        self._maintenance_interval_s = settings.maintenance_interval_s
        self._worker_id = worker.id
        self._clock = clock
        self._timer = timer
        self._ring = RingView(-1, ())
        self._is_maintenance_due = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._cache = ContentCache(settings.content_cache_bytes, EXPIRY_S)
        self._signer = RequestSigner(secret, worker.id)
        self._client = PeerClient(self._signer, clock.wall_s)
        self._overlay = NeighbourOverlay(
            worker.id,
            NeighbourLimits(near_s=settings.near_rtt_s),
            self._client,
            clock=clock,
            tasks=self._tasks,
            cached_digests=lambda: [digest.hex() for digest in self._cache.digests],
        )
        finder = PeerContentSearch(self._client, clock, self._overlay, self._owner_of)
        self.contents = BaselineLookup(store.channels, self._cache, clock, finder.find, self._overlay.on_cache_changed)
        self.messages = NodeMessageTransport(
            store.node_inboxes, self._client, clock, self._tasks, settings.maintenance_interval_s
        )
        self._handlers: Mapping[str, VerbHandler] = {
            PING: _on_ping,
            STREAM_VERB: self._on_stream_batch,
            FIND: self._on_find,
            NODE_MESSAGES_VERB: self.messages.on_request,
        }

    async def on_request(self, request: web.Request) -> web.Response:
        """Handle a POST request to ``/peers/{worker}/{verb}`` from another worker."""
        verb = request.match_info["verb"]
        if not self._has_secret or request.match_info["worker"] != self._worker_id or verb not in self._handlers:
            raise web.HTTPNotFound
        try:
            return await self._handle(request, verb)
        except PeerProtocolError as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.info("peer request rejected", address=client_of(request).address, error=str(error))
            return web.Response(status=REFUSED)

    async def _handle(self, request: web.Request, verb: str) -> web.Response:
        """Check the signature of a request from another worker, and return the signed response."""
        signature = parse_signature(request.headers.get(SIGNATURE_HEADER, ""))
        self._signer.check_time(signature, self._clock.wall_s())
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise PeerProtocolError(f"A request has more than {MAX_REQUEST_BYTES} bytes.", reason="size") from error
        self._signer.verify(signature, verb, body, self._clock.wall_s())
        status, response = 200, b""
        try:
            response = self._handlers[verb](signature.sender, body)
        except PeerProtocolError as error:
            if error.reason != "stream":
                raise
            PEER_REFUSALS.labels(error.reason).inc()
            status = RESTART_STREAM
        headers = {SIGNATURE_HEADER: self._signer.response_mac(signature.nonce, status, response)}
        return web.Response(status=status, body=response, headers=headers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Maintain the cache and the neighbours inside this context; when it ends, stop all requests."""
        async with self._client:
            self._tasks.start(self._maintain())
            self._tasks.start(self._start_maintenance_at_ticks())
            try:
                yield
            finally:
                await self._tasks.cancel()

    def on_ring_changed(self, ring: RingView) -> None:
        """Exchange data with the workers in ``ring`` from now on.

        Each node of this worker calls this method. A call has no effect unless ``ring`` is newer than in all earlier
        calls.
        """
        if self._has_secret and ring.version > self._ring.version:
            self._ring = ring
            self.messages.on_ring_changed(ring)
            self._overlay.set_peers(peer for info in ring.nodes if (peer := peer_of(info)))
            self._is_maintenance_due.set()

    async def _maintain(self) -> None:
        while True:
            await self._is_maintenance_due.wait()
            self._is_maintenance_due.clear()
            self.contents.expire()
            await self._overlay.maintain()

    async def _start_maintenance_at_ticks(self) -> None:
        while True:
            await self._timer.sleep(self._maintenance_interval_s)
            self._is_maintenance_due.set()

    def _owner_of(self, channel_id: ChannelId) -> Peer | None:
        info = self._ring.node(self._ring.owner(channel_id) or "")
        peer = peer_of(info) if info is not None else None
        return None if peer is None or peer.id == self._worker_id else peer

    def _on_stream_batch(self, sender: NodeId, body: bytes) -> bytes:
        try:
            batch = _batch.decode(body)
        except msgspec.MsgspecError as error:
            raise PeerProtocolError(f"A batch of {sender[:8]} is malformed: {error}.", reason="malformed") from error
        self._overlay.on_batch(sender, batch)
        return b""

    def _on_find(self, sender: NodeId, body: bytes) -> bytes:
        digest, query = decode_query(body)
        content = self._cache.get(digest, self._clock.monotonic_s())
        if content is not None:
            return b"".join((FOUND, *encode(content)))
        hop = self._overlay.next_hop(query) if sender in query.visited else None
        return encode_referral(*hop) if hop else NOT_FOUND


def _on_ping(_sender: NodeId, _body: bytes) -> bytes:
    return b""
