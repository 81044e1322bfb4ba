"""Whose neighbours we are, by measured round-trip times, and the filters that neighbours keep of each other.

What neighbours are told arrives in order and without gaps, or else both begin anew.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from random import sample

import msgspec
import structlog

from service.clock import Clock
from service.errors import PeerProtocolError, PeerUnreachable
from service.location import wire
from service.location.bloom import MIN_WIDTH, FilterShape, LocationQuery, best_hashes, next_shape
from service.location.neighbours import Effect, LinkAdded, LinkRemoved, Neighbourhood, NeighbourLimits, Offer, SendOffer
from service.location.protocol import LocationNode
from service.location.wire import MAX_FRAMES, Batch, SendToNeighbour, Stream
from service.model import NodeId
from service.net.peer_client import MAX_REQUEST_BYTES, Peer, PeerClient
from service.observability.metrics import FILTER_BITS, NEIGHBOURS, PEER_REFUSALS
from workers.tasks import BackgroundTasks

PING, TELL = "ping", "tell"
DEPTH = 3
FALSE_POSITIVES = 0.02
"""Wanted of the fullest row; those of all links come together in a lookup that finds nothing."""
_FIRST_WIDTH = 32 * MIN_WIDTH
_MEASURED_AT_ONCE = 24
_AGAIN = 4
"""So many of the others that are known are measured again each time, besides all neighbours."""
_PINGS = 4
_SAMPLES = 12
_PING_WITHIN_S = 2.0
_GATHERED_S = 0.1
"""Changes of the cache that come within it are told together."""
_SETTLED_WITHIN_S = 3.0
_TOLD_WITHIN_S = 0.3
"""A worker that has met others waits so long before its first lookups: in all, and from a neighbour's first word on."""
_FORGOTTEN_EVERY = 3
_OFFER, _MESSAGE = b"\x00", b"\x01"

_STREAM_BYTES = 8
_MOST_BATCH_BYTES = MAX_REQUEST_BYTES - 1024
_MOST_WAITING_BYTES = 8 * 1024 * 1024
"""A neighbour that is told more than it takes is forgotten, and told all anew once it is back."""
_TRIES = 4
_AGAIN_S = 0.7
"""Who has just joined is a stranger until the others' next heartbeats."""
_WITHIN_S = 5.0

log = structlog.get_logger(__name__)


class PeerStream:
    """Our end of what we and one other worker say to each other. ``over`` is called when both have to forget it."""

    def __init__(self, peer: Peer, client: PeerClient, tasks: BackgroundTasks, over: Callable[[NodeId], None]) -> None:
        """Say nothing yet."""
        self.peer = peer
        self._client = client
        self._tasks = tasks
        self._over = over
        self._stream = Stream(secrets.token_bytes(_STREAM_BYTES))
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sending = False

    def say(self, *frames: bytes) -> None:
        """Tell the other one this, soon; nothing: see whether it still knows us."""
        self._waiting.extend(frames)
        self._waiting_bytes += sum(map(len, frames))
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self._give_up("it takes less than it is told")
        elif not self._sending:
            self._sending = True
            self._tasks.start(self._send())

    def hear(self, batch: Batch) -> tuple[bytes, ...]:
        """Return what is new in what the other one says. Raises :class:`PeerProtocolError` if it has to begin anew."""
        if self._stream.is_restart(batch):
            self._give_up("it began anew")
        return self._stream.receive(batch)

    async def _send(self) -> None:
        try:
            more = True
            while more:
                batch = self._stream.next_batch(self._taken())
                try:
                    await self._send_batch(batch)
                except (PeerUnreachable, PeerProtocolError) as error:
                    if isinstance(error, PeerProtocolError):
                        PEER_REFUSALS.labels(error.reason).inc()
                    if self._stream.is_current(batch):
                        self._give_up(str(error))
                more = bool(self._waiting)
        finally:
            self._sending = False

    def _taken(self) -> tuple[bytes, ...]:
        frames: list[bytes] = []
        size = 0
        while self._waiting and len(frames) < MAX_FRAMES and size + len(self._waiting[0]) <= _MOST_BATCH_BYTES:
            frames.append(self._waiting.popleft())
            size += len(frames[-1]) + 5
        self._waiting_bytes -= sum(map(len, frames))
        return tuple(frames)

    async def _send_batch(self, batch: Batch) -> None:
        body = msgspec.msgpack.encode(batch)
        for left in reversed(range(_TRIES)):
            try:
                await self._client.request(self.peer, TELL, body, timeout_s=_WITHIN_S, max_bytes=0)
            except (PeerUnreachable, PeerProtocolError) as error:
                if not left or not self._stream.is_current(batch) or getattr(error, "reason", "") == "stream":
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                self._stream.on_delivered(batch)
                return

    def _give_up(self, why: str) -> None:
        log.info("a neighbour is forgotten", worker=self.peer.id[:8], why=why)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._stream.restart(secrets.token_bytes(_STREAM_BYTES))
        self._over(self.peer.id)


class NeighbourOverlay:
    """One worker's neighbours. ``have`` names what is in its cache, as digests in hex."""

    def __init__(
        self,
        me: NodeId,
        limits: NeighbourLimits,
        client: PeerClient,
        *,
        clock: Clock,
        tasks: BackgroundTasks,
        have: Callable[[], Collection[str]],
    ) -> None:
        """Know nobody yet."""
        self._me = me
        self._near_s = limits.near_s
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._have = have
        self._peers: dict[NodeId, Peer] = {}
        self._posts: dict[NodeId, PeerStream] = {}
        self._rtts_s: dict[NodeId, deque[float]] = {}
        self._neighbourhood = Neighbourhood(me, limits)
        self._node = LocationNode(
            me, FilterShape(0, _FIRST_WIDTH, best_hashes(_FIRST_WIDTH, [_FIRST_WIDTH / 10]), DEPTH)
        )
        self._telling: asyncio.TimerHandle | None = None
        self._rounds = 0
        self._settled = asyncio.Event()

    def meet(self, peers: Iterable[Peer]) -> None:
        """Know that these are the other workers now."""
        present = {peer.id: peer for peer in peers if peer.id != self._me}
        for gone in self._peers.keys() - present.keys():
            del self._peers[gone]
            self._forget(gone)
            self._posts.pop(gone, None)
        if present and not self._peers:
            self.changed()
            asyncio.get_running_loop().call_later(_SETTLED_WITHIN_S, self._settled.set)
        self._peers = present

    async def settled(self) -> None:
        """Wait, if we are new among others, until neighbours have told what they have: it is worth a moment."""
        if self._peers:
            await self._settled.wait()

    def peer(self, node: NodeId) -> Peer | None:
        """Return a worker of the ring."""
        return self._peers.get(node)

    def first(self, document: str) -> tuple[NodeId, LocationQuery] | None:
        """Begin a query here: return whom to ask; None if no filter matches."""
        return self._node.next_hop(self._node.start_query(document))

    def next(self, query: LocationQuery) -> tuple[NodeId, int] | None:
        """Return to whom another one's query goes on from here, and the row that says so."""
        step = self._node.next_hop(query)
        return None if step is None else (step[0], step[1].max_row + 1)

    def changed(self) -> None:
        """Tell neighbours soon that something else is in the cache."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_GATHERED_S, self._tell_changes)

    async def keep_up(self) -> None:
        """Measure round-trip times, look for better neighbours, and keep filters as wide as what they hold asks for.

        To be called each maintenance interval.
        """
        if not self._peers:
            return
        await self._measure()
        self._rounds += 1
        if self._rounds % _FORGOTTEN_EVERY == 0:
            self._carry_out(self._neighbourhood.reset_declined())
        for neighbour in tuple(self._node.links):
            self._say(neighbour)
        self._send(self._node.refresh())
        # A row may be full, which tells nothing of how many documents it has; wider ones will tell.
        fullest = min(self._node.fullest_row(), 2.0 * self._node.shape.width)
        self._send(self._node.reshape(next_shape(self._node.shape, fullest, FALSE_POSITIVES)))
        self._measure_up()

    def heard(self, sender: NodeId, batch: Batch) -> None:
        """Apply another worker's batch. Raises :class:`PeerProtocolError` if it must restart or is unknown."""
        if sender not in self._peers:
            raise PeerProtocolError(f"{sender[:8]} is not in the ring, as far as is known here.", reason="stranger")
        for frame in self._post(sender).hear(batch):
            try:
                self._hear(sender, frame)
            except PeerProtocolError as error:
                PEER_REFUSALS.labels(error.reason).inc()

    def close(self) -> None:
        """Tell nobody anything any more."""
        if self._telling is not None:
            self._telling.cancel()

    def _hear(self, sender: NodeId, frame: bytes) -> None:
        kind, rest = frame[:1], frame[1:]
        if kind == _MESSAGE:
            self._send(self._node.on_message(sender, wire.decode(rest)))
            if not self._settled.is_set():
                asyncio.get_running_loop().call_later(_TOLD_WITHIN_S, self._settled.set)
            return
        try:
            (number,) = rest
            offer = Offer(number if kind == _OFFER else 0)
        except ValueError as error:
            raise PeerProtocolError(f"{sender[:8]} says what nobody says here.", reason="malformed") from error
        if offer not in {Offer.ACCEPT, Offer.DECLINE} and sender not in self._rtts_s:
            self._tasks.start(self._measured_first(sender, offer))
        else:
            self._carry_out(self._neighbourhood.on_offer(sender, offer))

    async def _measured_first(self, sender: NodeId, offer: Offer) -> None:
        """Measure a worker that asks before we have, and answer then."""
        if sender in self._peers:
            await self._ping(self._peers[sender])
        if sender in self._rtts_s:
            self._carry_out(self._neighbourhood.on_measurements([(sender, min(self._rtts_s[sender]))]))
        self._carry_out(self._neighbourhood.on_offer(sender, offer))

    def _tell_changes(self) -> None:
        self._telling = None
        if not self._peers:
            return
        have, told = set(self._have()), self._node.own.documents
        self._send(self._node.change(have - told, told - have))

    async def _measure(self) -> None:
        known = self._rtts_s.keys()
        new = [node for node in self._peers if node not in known]
        again = [node for node in known if node not in self._node.links]
        chosen = sample(new, min(len(new), _MEASURED_AT_ONCE)) + sample(again, min(len(again), _AGAIN))
        await asyncio.gather(*(self._ping(self._peers[node]) for node in (*chosen, *self._node.links)))
        measured = {node: min(rtts_s) for node, rtts_s in self._rtts_s.items()}
        self._carry_out(self._neighbourhood.on_measurements(measured.items()))
        for node in self._node.links.keys() & measured.keys():
            self._send(self._node.add_link(node, measured[node]))

    async def _ping(self, peer: Peer) -> None:
        """Measure one round-trip time. What opens the connection, and what waits for a busy machine, is left out."""
        for _ in range(_PINGS):
            began_s = self._clock.monotonic_s()
            try:
                await self._client.request(peer, PING, b"", timeout_s=_PING_WITHIN_S, max_bytes=0)
            except (PeerUnreachable, PeerProtocolError) as error:
                log.info("a worker cannot be measured", worker=peer.id[:8], why=str(error))
                self._forget(peer.id)
                return
            if peer.id not in self._peers:
                return  # it has left meanwhile
            samples = self._rtts_s.setdefault(peer.id, deque(maxlen=_SAMPLES))
            samples.append(self._clock.monotonic_s() - began_s)

    def _forget(self, node: NodeId) -> None:
        self._rtts_s.pop(node, None)
        self._carry_out(self._neighbourhood.on_peer_left(node))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendOffer(to, offer):
                    self._say(to, _OFFER + bytes((offer.value,)))
                case LinkAdded(neighbour, rtt_s):
                    self._send(self._node.add_link(neighbour, rtt_s))
                case LinkRemoved(neighbour):
                    self._send(self._node.remove_link(neighbour))

    def _send(self, sends: Iterable[SendToNeighbour]) -> None:
        for send in sends:
            self._say(send.to, _MESSAGE + wire.encode(send.message))

    def _say(self, to: NodeId, *frames: bytes) -> None:
        if to in self._peers:
            self._post(to).say(*frames)

    def _post(self, node: NodeId) -> PeerStream:
        post = self._posts.get(node)
        if post is None:
            post = self._posts[node] = PeerStream(self._peers[node], self._client, self._tasks, self._forget)
        return post

    def _measure_up(self) -> None:
        FILTER_BITS.set(self._node.shape.width)
        near = sum(link.rtt_s <= self._near_s for link in self._node.links.values())
        NEIGHBOURS.labels("near").set(near)
        NEIGHBOURS.labels("far").set(len(self._node.links) - near)
