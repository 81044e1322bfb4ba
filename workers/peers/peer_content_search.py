"""Searches for the content of a channel (a feed or page) at other workers: by Bloom filters, then at its owner.

The search by attenuated Bloom filters is the query of Rhea and Kubiatowicz, §II.C. As long as all workers are close to
each other, there are no filters, and the search begins at the owner.

The searching worker makes all requests itself: each worker that it asks either returns the content or names the next
worker to ask. No worker therefore waits on behalf of another. A search ends when it would return to a worker that was
already asked, so it never runs in circles.
"""

import struct
from collections.abc import Callable

import structlog

from service.clock import Clock
from service.errors import PeerProtocolError, PeerUnreachable
from service.location.bloom_filters import MAX_DEPTH
from service.location.content_cache import DIGEST_BYTES, MAX_CONTENT_BYTES, Content, Digest, decode, digest_of
from service.location.query_routing import LocationQuery
from service.model import ChannelId, NodeId
from service.net.peer_client import Peer, PeerClient
from service.observability.metrics import LOOKUP_FAILURES, PEER_REFUSALS
from workers.peers.baseline_lookup import LocatedContent
from workers.peers.neighbour_overlay import NeighbourOverlay

Referral = tuple[NodeId, int]
"""The next worker to query for the content, and the index of the filter row that matched."""

FIND = "find"
FOUND, REFERRAL, NOT_FOUND = b"\x01", b"\x02", b"\x00"
"""The first byte of a response. ``FOUND`` is followed by the content. ``REFERRAL`` is followed by the id (20 bytes) of
the next worker to query and the index of the filter row that matched."""

_NODE_BYTES = 20
_MAX_VISITED = MAX_DEPTH + 1
_REFERRAL = struct.Struct(">20sB")

_HOP_TIMEOUT_S = 1.0
_WALK_TIMEOUT_S = 2.0
_OWNER_TIMEOUT_S = 3.0
"""Timeout of a request to the owner; a worker that takes longer is slower than the store."""

log = structlog.get_logger(__name__)


def encode_query(digest: Digest, query: LocationQuery) -> bytes:
    """Encode a request for the content with the hash ``digest``.

    ``query`` lists the workers that have already been asked. It also states the last row of the Bloom filters in
    which to search. Row i of a filter represents the workers that are i hops away.
    """
    return digest + bytes((query.max_row,)) + b"".join(map(bytes.fromhex, query.visited))


def decode_query(body: bytes) -> tuple[Digest, LocationQuery]:
    """Decode a request from :func:`encode_query`; return the hash of the requested content, and the query.

    Raises :class:`PeerProtocolError` if the request is malformed.
    """
    digest, rows, visited = body[:DIGEST_BYTES], body[DIGEST_BYTES : DIGEST_BYTES + 1], body[DIGEST_BYTES + 1 :]
    if not rows or rows[0] > MAX_DEPTH or len(visited) % _NODE_BYTES or len(visited) > _MAX_VISITED * _NODE_BYTES:
        raise PeerProtocolError("A content query is malformed.", reason="malformed")
    nodes = tuple(visited[at : at + _NODE_BYTES].hex() for at in range(0, len(visited), _NODE_BYTES))
    return digest, LocationQuery(digest.hex(), nodes, rows[0])


def encode_referral(node: NodeId, row: int) -> bytes:
    """Encode a response that names ``node`` as the next worker to ask; ``row`` is the filter row that matched."""
    return REFERRAL + _REFERRAL.pack(bytes.fromhex(node), row)


class PeerContentSearch:
    """Requests channels' contents from other workers.

    A channel's content consists of its latest entries and its baseline, the state with which the next poll compares the
    document.
    """

    def __init__(
        self, client: PeerClient, clock: Clock, overlay: NeighbourOverlay, get_owner: Callable[[ChannelId], Peer | None]
    ) -> None:
        """Create a search that sends requests through ``client`` and uses the neighbours' filters in ``overlay``.

        ``get_owner`` returns the worker that owns a channel; None if it is this worker or unknown.
        """
        self._client = client
        self._clock = clock
        self._overlay = overlay
        self._get_owner = get_owner

    async def find(self, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent | None:
        """Return a channel's content from a nearby worker, or else from the channel's owner; None if not found.

        ``digest`` is the hash of the content at ``version``.
        """
        await self._overlay.wait_until_ready()
        visited: tuple[NodeId, ...] = ()
        if self._overlay.has_far_peers:
            near, visited = await self._walk(version, digest)
            if near is not None:
                return near
        owner = self._get_owner(channel_id)
        if owner is None or owner.id in visited:
            return None
        query = LocationQuery(digest.hex(), (*visited, owner.id), 0)
        found = await self._request(owner, digest, query, _OWNER_TIMEOUT_S)
        return LocatedContent(found, version, "owner", 1, owner.id) if isinstance(found, Content) else None

    async def _walk(self, version: int, digest: Digest) -> tuple[LocatedContent | None, tuple[NodeId, ...]]:
        """Ask one worker after another for the content with the hash ``digest``, guided by their Bloom filters.

        Return the content (None if it was not found) and the ids of the workers that were asked.
        """
        until_s = self._clock.monotonic_s() + _WALK_TIMEOUT_S
        step = self._overlay.first_hop(digest.hex())
        if step is None:
            LOOKUP_FAILURES.labels("none").inc()
            return None, ()
        while step is not None:
            worker, query = step
            peer, left_s = self._overlay.peers.get(worker), until_s - self._clock.monotonic_s()
            if peer is None or left_s <= 0:
                break
            found = await self._request(peer, digest, query, min(left_s, _HOP_TIMEOUT_S))
            if isinstance(found, Content):
                return LocatedContent(found, version, "near", len(query.visited) - 1, worker), query.visited
            step = _next_step(query, found) if found else None
        LOOKUP_FAILURES.labels("false-positive").inc()
        return None, query.visited

    async def _request(
        self, peer: Peer, digest: Digest, query: LocationQuery, timeout_s: float
    ) -> Content | Referral | None:
        """Request the content with the hash ``digest`` from the worker ``peer``.

        Return the content, or a referral to another worker. Return None if ``peer`` sends neither, sends an invalid
        response, or cannot be reached.
        """
        try:
            body = encode_query(digest, query)
            response = await self._client.request(peer, FIND, body, timeout_s=timeout_s, max_bytes=MAX_CONTENT_BYTES)
            return _decode_response(response, digest)
        except PeerProtocolError as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.warning("content from worker rejected", worker=peer.id[:8], error=str(error))
        except PeerUnreachable as error:
            log.info("content request to worker failed", worker=peer.id[:8], error=str(error))
        return None


def _decode_response(response: bytes, digest: Digest) -> Content | Referral | None:
    """Return the content, or the referral to another worker, that a response contains; None if it has neither.

    Raises :class:`PeerProtocolError` if the response is malformed, or if ``digest`` is not the hash of the content.
    """
    kind, rest = response[:1], memoryview(response)[1:]
    if kind == FOUND:
        content = decode(rest)
        if digest_of(content) != digest:
            raise PeerProtocolError("A content does not match its digest.", reason="digest")
        return content
    if kind == REFERRAL and len(rest) == _REFERRAL.size:
        node, row = _REFERRAL.unpack(rest)
        return node.hex(), row
    if response != NOT_FOUND:
        raise PeerProtocolError("A response has neither a content nor a referral.", reason="malformed")
    return None


def _next_step(query: LocationQuery, referral: Referral) -> tuple[NodeId, LocationQuery] | None:
    """Return the worker that ``referral`` names and the query to send to it; None if the search ends.

    The search ends if this worker has already been asked, or if no filter rows are left to search.
    """
    node, row = referral
    if node in query.visited or not 1 <= row <= query.max_row:
        return None
    return node, LocationQuery(query.document, (*query.visited, node), row - 1)
