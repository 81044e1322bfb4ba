"""Finding a content near by: along the filters (§II.C), and else at the channel's owner, the deterministic way.

The walk is the asker's: each worker hands over what it has, or names the next one, and the asker goes there itself. So
nobody waits on behalf of others, no content is carried over several hops, and nobody can send it round in circles.
"""

import struct
from collections.abc import Callable

import structlog

from service.clock import Clock
from service.errors import PeerProtocolError, PeerUnreachable
from service.location.bloom import MAX_DEPTH, LocationQuery
from service.location.content_cache import DIGEST_BYTES, MAX_CONTENT_BYTES, Content, Digest, decode, digest_of
from service.model import ChannelId, NodeId
from service.net.peer_client import Peer, PeerClient
from service.observability.metrics import LOOKUP_FAILURES, PEER_REFUSALS
from workers.peers.content_cache import LocatedContent
from workers.peers.neighbour_overlay import NeighbourOverlay

FIND = "find"
HERE, THERE, NOWHERE = b"\x01", b"\x02", b"\x00"
"""What an answer begins with: a content follows; or who may have it, 20 bytes, and in which row that is said."""

_NODE_BYTES = 20
_MOST_VISITED = MAX_DEPTH + 1
_ONWARD = struct.Struct(">20sB")

_HOP_WITHIN_S = 1.0
_WALK_WITHIN_S = 2.0
_OWNER_WITHIN_S = 3.0
"""A worker that takes longer is slower than the store."""

log = structlog.get_logger(__name__)


def question(digest: Digest, query: LocationQuery) -> bytes:
    """Return what a worker is asked: the content, how deep it may look into its filters, and where we were."""
    return digest + bytes((query.max_row,)) + b"".join(map(bytes.fromhex, query.visited))


def asked(body: bytes) -> tuple[Digest, LocationQuery]:
    """Return what :func:`question` asks. Raises :class:`PeerProtocolError` for what it never says."""
    digest, rows, visited = body[:DIGEST_BYTES], body[DIGEST_BYTES : DIGEST_BYTES + 1], body[DIGEST_BYTES + 1 :]
    if not rows or rows[0] > MAX_DEPTH or len(visited) % _NODE_BYTES or len(visited) > _MOST_VISITED * _NODE_BYTES:
        raise PeerProtocolError("A question is not for a content.", reason="malformed")
    nodes = tuple(visited[at : at + _NODE_BYTES].hex() for at in range(0, len(visited), _NODE_BYTES))
    return digest, LocationQuery(digest.hex(), nodes, rows[0])


def onward(node: NodeId, row: int) -> bytes:
    """Return the answer that sends a query on."""
    return THERE + _ONWARD.pack(bytes.fromhex(node), row)


class ContentFinder:
    """Asks others for contents."""

    def __init__(
        self, client: PeerClient, clock: Clock, overlay: NeighbourOverlay, owner: Callable[[ChannelId], Peer | None]
    ) -> None:
        """Ask with ``client``; ``owner`` is a channel's, None if that is this worker."""
        self._client = client
        self._clock = clock
        self._overlay = overlay
        self._owner = owner

    async def find(self, cid: ChannelId, version: int, digest: Digest) -> LocatedContent | None:
        """Return a content from near by, or else from the channel's owner; None if neither has it."""
        await self._overlay.settled()
        near, visited = await self._walk(version, digest)
        if near is not None:
            return near
        owner = self._owner(cid)
        if owner is None or owner.id in visited:
            return None
        found, _ = await self._ask(owner, digest, LocationQuery(digest.hex(), (*visited, owner.id), 0), _OWNER_WITHIN_S)
        return LocatedContent(found, version, "owner", 1, owner.id) if found else None

    async def _walk(self, version: int, digest: Digest) -> tuple[LocatedContent | None, tuple[NodeId, ...]]:
        until_s = self._clock.monotonic_s() + _WALK_WITHIN_S
        step = self._overlay.first(digest.hex())
        if step is None:
            LOOKUP_FAILURES.labels("none").inc()
            return None, ()
        while step is not None:
            worker, query = step
            peer, left_s = self._overlay.peer(worker), until_s - self._clock.monotonic_s()
            if peer is None or left_s <= 0:
                break
            found, further = await self._ask(peer, digest, query, min(left_s, _HOP_WITHIN_S))
            if found is not None:
                return LocatedContent(found, version, "near", len(query.visited) - 1, worker), query.visited
            step = _next(query, further)
        LOOKUP_FAILURES.labels("false-positive").inc()
        return None, query.visited

    async def _ask(
        self, peer: Peer, digest: Digest, query: LocationQuery, within_s: float
    ) -> tuple[Content | None, tuple[NodeId, int] | None]:
        """Return the content, or who may have it; neither if this worker is of no use."""
        try:
            body = question(digest, query)
            answer = await self._client.request(peer, FIND, body, timeout_s=within_s, max_bytes=MAX_CONTENT_BYTES)
            return _read(answer, digest)
        except PeerProtocolError as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.warning("a copy is refused", worker=peer.id[:8], why=str(error))
        except PeerUnreachable as error:
            log.info("a worker has no copy for us", worker=peer.id[:8], why=str(error))
        return None, None


def _read(answer: bytes, digest: Digest) -> tuple[Content | None, tuple[NodeId, int] | None]:
    """Return what an answer says. Raises :class:`PeerProtocolError` for other content or nonsense."""
    kind, rest = answer[:1], memoryview(answer)[1:]
    if kind == HERE:
        content = decode(rest)
        if digest_of(content) != digest:
            raise PeerProtocolError("A copy is not what its name says.", reason="digest")
        return content, None
    if kind == THERE and len(rest) == _ONWARD.size:
        node, row = _ONWARD.unpack(rest)
        return None, (node.hex(), row)
    if answer != NOWHERE:
        raise PeerProtocolError("An answer is neither a content nor says where one is.", reason="malformed")
    return None, None


def _next(query: LocationQuery, further: tuple[NodeId, int] | None) -> tuple[NodeId, LocationQuery] | None:
    """Return the next step of a walk: to nobody twice, and no deeper than the last one allowed."""
    if further is None:
        return None
    node, row = further
    if node in query.visited or not 1 <= row <= query.max_row:
        return None
    return node, LocationQuery(query.document, (*query.visited, node), row - 1)
