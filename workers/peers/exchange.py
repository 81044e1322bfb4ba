"""A worker's exchange with other workers: of contents, by cache, finder and overlay, and of messages between nodes.

The endpoint for other workers refuses and counts requests that are unsigned, too old, repeated or too large.
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
from service.location.messages import StreamBatch
from service.location.neighbours import NeighbourLimits
from service.model import ChannelId, NodeId, NodeInfo
from service.net.http_server import client_of
from service.net.peer_client import MAX_REQUEST_BYTES, REFUSED, RESTART_STREAM, Peer, PeerClient, peer_of
from service.net.request_signatures import SIGNATURE_HEADER, RequestSigner, parse_signature
from service.observability.metrics import PEER_REFUSALS
from service.overlay.ring import RingView
from service.settings import Settings
from service.store import Store
from workers.peers.content_cache import EXPIRY_S, ContentLocator
from workers.peers.content_finder import FIND, FOUND, NOT_FOUND, ContentFinder, decode_query, encode_referral
from workers.peers.message_exchange import NODE_MESSAGES_VERB, MessageExchange
from workers.peers.neighbour_overlay import MESSAGES, PING, NeighbourOverlay
from workers.tasks import BackgroundTasks

VerbHandler = Callable[[NodeId, bytes], bytes]
"""Maps (sender, request) to a response. May raise :class:`PeerProtocolError`; the reason ``stream`` means: restart."""

log = structlog.get_logger(__name__)

_batch = msgspec.msgpack.Decoder(StreamBatch)


class PeerExchange:
    """The exchange between this worker and others; an async context manager.

    Without a cluster secret, contents are read only from the cache and the store, and messages to nodes of other
    workers go through inboxes in the store.
    """

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Create the exchange with an empty cache; it knows no other workers yet.

        ``clock`` shows the fleet's common time, by which requests are signed.
        """
        self._settings = settings
        self._channels = store.channels
        self._clock = clock
        self._ring = RingView(-1, ())
        self._ring_changed = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._cache = ContentCache(settings.content_cache_bytes, EXPIRY_S)
        self._worker_id: NodeId = ""
        self._signer: RequestSigner | None = None
        self._client: PeerClient | None = None
        self._overlay: NeighbourOverlay | None = None
        self.contents = ContentLocator(store.channels, self._cache, clock)
        self.messages = MessageExchange(store.node_inboxes, clock, self._tasks)
        self._handlers: Mapping[str, VerbHandler] = {
            PING: _on_ping,
            MESSAGES: self._on_messages,
            FIND: self._on_find,
            NODE_MESSAGES_VERB: self.messages.on_request,
        }

    def configure(self, info: NodeInfo) -> None:
        """Set the address and id of this worker's process from ``info``.

        If there is a cluster secret, which signs requests between workers, the exchange begins.
        """
        worker, secret = peer_of(info), self._settings.cluster_secret.get_secret_value()
        if worker is not None and secret:
            self._configure(worker, RequestSigner(secret, worker.id))

    def _configure(self, worker: Peer, signer: RequestSigner) -> None:
        self._worker_id, self._signer, self._client = worker.id, signer, PeerClient(signer, self._clock.wall_s)
        self.messages.connect(self._client)
        limits = NeighbourLimits(near_s=self._settings.near_rtt_s)
        self._overlay = NeighbourOverlay(
            worker.id,
            limits,
            self._client,
            clock=self._clock,
            tasks=self._tasks,
            cached_digests=self._cached_digests,
        )
        finder = ContentFinder(self._client, self._clock, self._overlay, self._owner_of)
        self.contents = ContentLocator(
            self._channels, self._cache, self._clock, finder.find, self._overlay.on_cache_changed
        )

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes at which this worker handles requests of other workers."""
        return [web.post("/peers/{worker}/{verb}", self._on_request)]

    async def _on_request(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if self._signer is None or request.match_info["worker"] != self._worker_id or verb not in self._handlers:
            raise web.HTTPNotFound
        try:
            return await self._handle(request, verb, self._signer)
        except PeerProtocolError as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.info("peer request rejected", address=client_of(request).address, reason=str(error))
            return web.Response(status=REFUSED)

    async def _handle(self, request: web.Request, verb: str, signer: RequestSigner) -> web.Response:
        """Check the signature of a request of another worker, and return the signed response.

        ``verb`` is the kind of the request, and ``signer`` checks and creates signatures.
        """
        signature = parse_signature(request.headers.get(SIGNATURE_HEADER, ""))
        signer.check_time(signature, self._clock.wall_s())
        body = await _read_body(request)
        signer.verify(signature, verb, body, self._clock.wall_s())
        status, response = 200, b""
        try:
            response = self._handlers[verb](signature.sender, body)
        except PeerProtocolError as error:
            if error.reason != "stream":
                raise
            PEER_REFUSALS.labels(error.reason).inc()
            status = RESTART_STREAM
        headers = {SIGNATURE_HEADER: signer.response_mac(signature.nonce, status, response)}
        return web.Response(status=status, body=response, headers=headers)

    async def __aenter__(self) -> Self:
        """Start the periodic maintenance of the cache and the overlay in the background."""
        if self._client is not None:
            await self._client.__aenter__()
        self._tasks.start(self._maintain())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop maintenance, and send no more requests to other workers."""
        if self._overlay is not None:
            self._overlay.close()
        await self._tasks.cancel()
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    def on_ring_changed(self, ring: RingView) -> None:
        """Set the workers in the ring as possible peers.

        Each node of this worker calls this method; a version of the ring that is already known has no effect.
        """
        if ring.version > self._ring.version:
            self._ring = ring
            self.messages.on_ring_changed(ring)
            if self._overlay is not None:
                self._overlay.set_peers(peer for info in ring.nodes if (peer := peer_of(info)))
                self._ring_changed.set()

    async def _maintain(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.maintenance_interval_s):
                    await self._ring_changed.wait()
            self._ring_changed.clear()
            self.contents.expire()
            if self._overlay is not None:
                await self._overlay.maintain()

    def _cached_digests(self) -> list[str]:
        return [digest.hex() for digest in self._cache.digests]

    def _owner_of(self, channel_id: ChannelId) -> Peer | None:
        info = self._ring.node(self._ring.owner(channel_id) or "")
        peer = peer_of(info) if info is not None else None
        return None if peer is None or peer.id == self._worker_id else peer

    def _on_messages(self, sender: NodeId, body: bytes) -> bytes:
        if self._overlay is None:
            return b""
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
        hop = self._overlay.next_hop(query) if self._overlay is not None and sender in query.visited else None
        return encode_referral(*hop) if hop else NOT_FOUND


async def _read_body(request: web.Request) -> bytes:
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > MAX_REQUEST_BYTES:
            raise PeerProtocolError(f"A request has more than {MAX_REQUEST_BYTES} bytes.", reason="size")
    return bytes(body)


def _on_ping(_sender: NodeId, _body: bytes) -> bytes:
    return b""
