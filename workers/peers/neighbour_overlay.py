"""The overlay network of workers: selects neighbours by round-trip time, and exchanges attenuated Bloom filters.

An attenuated Bloom filter shows which contents (data of feeds and pages) can be found at a neighbour, or a few hops
behind it. The filters save requests to distant workers. As long as all workers are close to each other, there are no
neighbours and no filters.
"""

# The owner of a channel is then as near as any worker that has its content.

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import sample

import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.errors import PeerProtocolError, PeerUnreachable
from service.location import messages
from service.location.bloom_filters import MIN_WIDTH, FilterShape, best_hashes, next_shape
from service.location.location_node import LocationNode
from service.location.messages import SendToNeighbour, StreamBatch
from service.location.neighbour_choice import (
    Effect,
    LinkAdded,
    LinkRemoved,
    Neighbourhood,
    NeighbourLimits,
    Offer,
    SendOffer,
)
from service.location.query_routing import LocationQuery
from service.model import NodeId
from service.net.peer_client import Peer, PeerClient
from service.observability.metrics import FILTER_WIDTH, NEIGHBOURS, PEER_REFUSALS
from workers.peers.peer_stream import PeerStream

PING = "ping"
DEPTH = 3
FALSE_POSITIVES = 0.02
"""Target rate of false positives of the fullest row of a filter. The rate must be low: in a search for
content that no worker has, the filters of all neighbours are searched, and their rates add up."""
MAX_FILTER_BITS = 1 << 19
"""Maximum width of a filter row in bits, which is 64 KiB."""
MAX_ROW_DOCUMENTS = 64_000
"""Number of documents (contents of channels) for which a filter row of ``MAX_FILTER_BITS`` is wide enough."""
MAX_ROW_WORKERS = 64
"""Maximum number of workers whose documents are in one filter row, in a fleet of any size."""
_FIRST_WIDTH = 32 * MIN_WIDTH
_NEW_MEASURED = 24
_MEASURED_AGAIN = 4
"""Number of workers besides the neighbours whose round-trip times are measured again in one maintenance round."""
_PINGS = 8
"""Maximum number of pings in one measurement. A worker counts as far only if all of them are slow, because a busy
machine delays some pings."""
_SAMPLES = 12
_PING_TIMEOUT_S = 2.0
_CHANGE_DELAY_S = 0.1
"""Changes of the cache within this time are sent together."""
_READY_TIMEOUT_S = 3.0
_READY_AFTER_MESSAGE_S = 0.3
"""Time from the first message of a neighbour until a new worker counts as ready. A worker that has just joined the ring
delays its first lookups until it is ready, so that it has received filters; the maximum delay is
``_READY_TIMEOUT_S``."""
_ROUNDS_PER_FORGET = 3
_ROUNDS_PER_MEASUREMENT = 12
"""Number of maintenance rounds after which known round-trip times are measured again."""
_OFFER, _MESSAGE = b"\x00", b"\x01"

log = structlog.get_logger(__name__)


class NeighbourOverlay:
    """The neighbours of one worker, and the attenuated Bloom filters that it exchanges with them.

    A filter shows which contents can be found at a neighbour, or a few hops behind it.
    """

    def __init__(
        self,
        worker_id: NodeId,
        limits: NeighbourLimits,
        client: PeerClient,
        *,
        clock: Clock,
        tasks: BackgroundTasks,
        cached_digests: Callable[[], Sequence[str]],
    ) -> None:
        """Create the overlay for the worker ``worker_id``, without any other workers yet.

        - ``limits``: limits on the number of neighbours, and the round-trip time up to which a worker counts as near.
        - ``client``: sends requests to other workers.
        - ``tasks``: runs background tasks.
        - ``cached_digests``: returns the hashes (hex) of the contents in this worker's cache, latest last.
        """
        self._worker_id = worker_id
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._cached_digests = cached_digests
        self.peers: dict[NodeId, Peer] = {}
        """The other workers in the ring, by their ids."""
        self._streams: dict[NodeId, PeerStream] = {}
        self._rtts_s: dict[NodeId, deque[float]] = {}
        self._limits = limits
        self._neighbourhood, self._node = self._start()
        self.has_far_peers = False
        """Whether the round-trip time to some worker exceeds the limit for near workers, so that filters are exchanged.
        """
        self._is_change_pending = False
        self._rounds = 0
        self._ready = asyncio.Event()

    def _start(self) -> tuple[Neighbourhood, LocationNode]:
        """Return (neighbourhood, node): the initial state, without neighbours and without contents to offer.

        ``neighbourhood`` selects the neighbours, and ``node`` exchanges Bloom filters with them.
        """
        shape = FilterShape(0, _FIRST_WIDTH, best_hashes(_FIRST_WIDTH, [_FIRST_WIDTH / 10]), DEPTH)
        return Neighbourhood(self._worker_id, self._limits), LocationNode(self._worker_id, shape)

    def set_peers(self, peers: Iterable[Peer]) -> None:
        """Set the other workers in the ring, from which neighbours are selected."""
        present = {peer.id: peer for peer in peers if peer.id != self._worker_id}
        for gone in self.peers.keys() - present.keys():
            del self.peers[gone]
            self._forget(gone)
            self._streams.pop(gone, None)
        if present and not self.peers:
            self.on_cache_changed()
            asyncio.get_running_loop().call_later(_READY_TIMEOUT_S, self._ready.set)
        self.peers = present

    async def wait_until_ready(self) -> None:
        """Wait until round-trip times have been measured and filters received, or until 3 s after joining the ring."""
        # A search with filters needs fewer requests to far workers.
        if self.peers:
            await self._ready.wait()

    def first_hop(self, document: str) -> tuple[NodeId, LocationQuery] | None:
        """Return the first worker to ask for a document, and the query to send; None if no filter matches.

        ``document`` is the hash (hex) of the content that is searched for.
        """
        return self._node.next_hop(self._node.start_query(document))

    def next_hop(self, query: LocationQuery) -> tuple[NodeId, int] | None:
        """Answer another worker's query: return the next worker to ask, and the index of the filter row that matched.

        Row i of a filter represents the workers that are i hops away. Return None if no filter matches.
        """
        step = self._node.next_hop(query)
        return None if step is None else (step[0], step[1].max_row + 1)

    def on_cache_changed(self) -> None:
        """Tell the neighbours how the cache has changed; changes in quick succession are sent together."""
        if self.has_far_peers and not self._is_change_pending:
            self._is_change_pending = True
            self._tasks.start(self._send_changes())

    async def maintain(self) -> None:
        """Do one round of maintenance: measure round-trip times, select neighbours, and update the filters.

        The filters are updated only while at least one worker is far away, measured by its round-trip time.
        """
        if not self.peers:
            return
        await self._measure()
        self._rounds += 1
        if not self.has_far_peers:
            return
        if self._rounds % _ROUNDS_PER_FORGET == 0:
            self._carry_out(self._neighbourhood.reset_declined())
            for neighbour in tuple(self._node.links):
                self._send_frames(neighbour)
        self._send(self._node.refresh())
        # The number of documents in a full row is unknown: the width is at most doubled, and examined again.
        fullest = min(self._node.fullest_row(), 2.0 * self._node.shape.width)
        self._send(self._node.reshape(next_shape(self._node.shape, fullest, FALSE_POSITIVES, MAX_FILTER_BITS)))
        self._update_metrics()

    def on_batch(self, sender: NodeId, batch: StreamBatch) -> None:
        """Process the messages that the worker ``sender`` has sent.

        Raises :class:`PeerProtocolError` if the sender is unknown or must restart its stream.
        """
        if sender not in self.peers:
            raise PeerProtocolError(f"{sender[:8]} is not in the ring, as far as is known here.", reason="stranger")
        for frame in self._stream(sender).receive(batch):
            try:
                self._on_frame(sender, frame)
            except PeerProtocolError as error:
                PEER_REFUSALS.labels(error.reason).inc()

    def _on_frame(self, sender: NodeId, frame: bytes) -> None:
        kind, rest = frame[:1], frame[1:]
        if kind == _MESSAGE:
            self._send(self._node.on_message(sender, messages.decode(rest)))
            if not self._ready.is_set():
                asyncio.get_running_loop().call_later(_READY_AFTER_MESSAGE_S, self._ready.set)
            return
        try:
            (number,) = rest
            offer = Offer(number if kind == _OFFER else 0)
        except ValueError as error:
            raise PeerProtocolError(f"{sender[:8]} sent an unknown message.", reason="malformed") from error
        if not self.has_far_peers:
            return  # the sender repeats the offer
        if offer not in {Offer.ACCEPT, Offer.DECLINE} and sender not in self._rtts_s:
            self._tasks.start(self._measure_and_respond(sender, offer))
        else:
            self._carry_out(self._neighbourhood.on_offer(sender, offer))

    async def _measure_and_respond(self, sender: NodeId, offer: Offer) -> None:
        """Measure the round-trip time to ``sender``, and then respond to its offer to become a neighbour."""
        if sender in self.peers:
            await self._ping(self.peers[sender])
        self._on_measured()
        if self.has_far_peers:
            self._carry_out(self._neighbourhood.on_offer(sender, offer))

    async def _send_changes(self) -> None:
        await asyncio.sleep(_CHANGE_DELAY_S)
        self._is_change_pending = False
        if not self.peers or not self.has_far_peers:
            return
        most = MAX_ROW_DOCUMENTS // min(len(self.peers), MAX_ROW_WORKERS)
        cached, announced = set(self._cached_digests()[-most:]), self._node.own.documents
        self._send(self._node.change(cached - announced, announced - cached))

    async def _measure(self) -> None:
        """Measure the round-trip times to new workers, and to neighbours with few measurements.

        Every ``_ROUNDS_PER_MEASUREMENT`` rounds, measure all neighbours and some other known workers again.
        """
        known = self._rtts_s.keys()
        new = [node for node in self.peers if node not in known]
        chosen = sample(new, min(len(new), _NEW_MEASURED))
        if self._rounds % _ROUNDS_PER_MEASUREMENT == 0:
            again = [node for node in known if node not in self._node.links]
            chosen += [*sample(again, min(len(again), _MEASURED_AGAIN)), *self._node.links]
        else:
            chosen += [node for node in self._node.links if len(self._rtts_s.get(node, ())) < _SAMPLES]
        await asyncio.gather(*(self._ping(self.peers[node]) for node in chosen if node in self.peers))
        self._on_measured()

    def _on_measured(self) -> None:
        """Select neighbours by the measured round-trip times, and start or stop the exchange of filters.

        Filters are exchanged only while at least one worker is far away, measured by its round-trip time.
        """
        measured = {node: min(rtts_s) for node, rtts_s in self._rtts_s.items()}
        had_far_peers, self.has_far_peers = (
            self.has_far_peers,
            max(measured.values(), default=0.0) > self._limits.near_s,
        )
        if not self.has_far_peers:
            if had_far_peers:
                self._leave_neighbours()
            if measured:
                self._ready.set()
            return
        if not had_far_peers:
            self.on_cache_changed()
        self._carry_out(self._neighbourhood.on_measurements(measured.items()))
        for node in self._node.links.keys() & measured.keys():
            self._send(self._node.add_link(node, measured[node]))

    def _leave_neighbours(self) -> None:
        """End all links to neighbours and return to the initial state, because no worker is far away any more."""
        for neighbour in self._node.links:
            self._send_frames(neighbour, _OFFER + bytes((Offer.DECLINE.value,)))
        self._neighbourhood, self._node = self._start()
        self._update_metrics()

    async def _ping(self, peer: Peer) -> None:
        """Measure the round-trip time to a worker, up to ``_PINGS`` times or until a result counts as near."""
        # Callers use the minimum, which excludes the time to open a connection and delays on a busy machine.
        for _ in range(_PINGS):
            began_s = self._clock.monotonic_s()
            try:
                await self._client.request(peer, PING, b"", timeout_s=_PING_TIMEOUT_S, max_bytes=0)
            except (PeerUnreachable, PeerProtocolError) as error:
                log.info("worker ping failed", worker=peer.id[:8], error=str(error))
                self._forget(peer.id)
                return
            if peer.id not in self.peers:
                return  # it has left meanwhile
            samples = self._rtts_s.setdefault(peer.id, deque(maxlen=_SAMPLES))
            samples.append(self._clock.monotonic_s() - began_s)
            if samples[-1] <= self._limits.near_s:
                return

    def _forget(self, node: NodeId) -> None:
        self._rtts_s.pop(node, None)
        self._carry_out(self._neighbourhood.on_peer_left(node))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendOffer(to, offer):
                    self._send_frames(to, _OFFER + bytes((offer.value,)))
                case LinkAdded(neighbour, rtt_s):
                    self._send(self._node.add_link(neighbour, rtt_s))
                case LinkRemoved(neighbour):
                    self._send(self._node.remove_link(neighbour))

    def _send(self, sends: Iterable[SendToNeighbour]) -> None:
        for send in sends:
            self._send_frames(send.to, _MESSAGE + messages.encode(send.message))

    def _send_frames(self, to: NodeId, *frames: bytes) -> None:
        if to in self.peers:
            self._stream(to).send(*frames)

    def _stream(self, node: NodeId) -> PeerStream:
        stream = self._streams.get(node)
        if stream is None:
            stream = self._streams[node] = PeerStream(self.peers[node], self._client, self._tasks, self._forget)
        return stream

    def _update_metrics(self) -> None:
        FILTER_WIDTH.set(self._node.shape.width / 8)
        near = sum(link.rtt_s <= self._limits.near_s for link in self._node.links.values())
        NEIGHBOURS.labels("near").set(near)
        NEIGHBOURS.labels("far").set(len(self._node.links) - near)
