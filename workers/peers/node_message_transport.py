"""Transport of messages between nodes: directly from worker to worker, or through the nodes' inboxes in Redis.

- Most messages are sent directly to the other worker, without load on Redis. They may be lost; the protocols that send
  them make up for this.
- A worker sends one request at a time to each other worker, ``GATHERING_S`` after its first message. Messages queued in
  the meantime share the request.
- Confirmations of unchanged state can wait for the next request in either direction: the response to a request contains
  the messages that wait for its sender. At rest, two workers therefore need one request for the confirmations of both.
- If a worker does not accept a request, messages to it go through inboxes for ``RETRY_S`` seconds.
- Urgent messages always go through inboxes, because a direct request would delay them if the other worker hangs.

Messages that take different paths may arrive in a different order. The protocols tolerate this.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clock import Clock
from service.corona.fleet_policy import CONFIRMATION_WAIT_INTERVALS
from service.errors import PeerProtocolError, PeerUnreachable, StoreUnavailable
from service.model import NodeId
from service.net.peer_client import Peer, PeerClient, peer_of
from service.observability.metrics import NODE_MESSAGES
from service.overlay.ring import RingView
from service.store.coordination.worker_inboxes import InboxMessage, NodeInboxes

NODE_MESSAGES_VERB = "messages"
"""The verb (last part of the URL) of a request with messages for nodes of the receiving worker."""
RETRY_S = 30.0
"""Time for which messages go through the inboxes after a worker has not accepted a request."""
GATHERING_S = 0.05
"""Delay of a message, in which others that a node sends at the same tick are queued: a request costs as much as dozens
of messages."""
REQUEST_TIMEOUT_S = 2.0
MAX_BATCH_BYTES = 512 * 1024
"""Maximum size of the messages in one request; a larger message goes through an inbox."""
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Maximum size of the queued messages to one worker; further messages go through the inboxes."""
_MAX_RESPONSE_BYTES = MAX_BATCH_BYTES + 64 * 1024

MessageHandler = Callable[[Sequence[InboxMessage]], Coroutine[Any, Any, None]]
"""Processes messages to one node, in order."""

NodeMessage = tuple[NodeId, InboxMessage]
"""The id of a node, and a message to it."""


class _WireMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message in a request to another worker or in a response.

    ``node`` is the receiving node; the other fields are those of an :class:`InboxMessage`.
    """

    node: Annotated[NodeId, msgspec.Meta(max_length=40)]
    kind: str
    sender: Annotated[NodeId, msgspec.Meta(max_length=40)]
    payload: bytes


class _Response(msgspec.Struct, frozen=True, array_like=True):
    """The response to a request with messages.

    - ``absent``: the ids of the receiving nodes that the worker does not run.
    - ``messages``: the messages that waited for the sender of the request.
    """

    absent: list[NodeId]
    messages: list[_WireMessage]


_encoder = msgspec.msgpack.Encoder()
_batch = msgspec.msgpack.Decoder(list[_WireMessage])
_response = msgspec.msgpack.Decoder(_Response)

log = structlog.get_logger(__name__)


class _Link(msgspec.Struct, eq=False):
    """The messages that are waiting to be sent to the worker ``peer``.

    - ``is_sending``: whether a request is under way.
    - ``timer``: starts the next request; None if no messages are queued or a request is under way.
    - ``retry_s``: the monotonic time until which messages go through the inboxes.
    """

    peer: Peer
    queue: deque[NodeMessage] = msgspec.field(default_factory=deque)
    queued_bytes: int = 0
    is_sending: bool = False
    timer: asyncio.TimerHandle | None = None
    retry_s: float = -inf

    def take_batch(self) -> list[NodeMessage]:
        """Remove and return as many queued messages as fit into one request."""
        batch: list[NodeMessage] = []
        size = 0
        while self.queue and (not batch or size + len(self.queue[0][1].payload) <= MAX_BATCH_BYTES):
            batch.append(self.queue.popleft())
            size += len(batch[-1][1].payload)
        self.queued_bytes -= size
        return batch

    def stop_timer(self) -> None:
        """Stop the timer if it is running."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class NodeMessageTransport:
    """Sends messages from this worker's nodes to other nodes, and receives messages for this worker's nodes."""

    def __init__(
        self, inboxes: NodeInboxes, client: PeerClient, clock: Clock, tasks: BackgroundTasks, interval_s: float
    ) -> None:
        """Create the transport, which sends all messages through inboxes until :meth:`on_ring_changed` is called.

        ``interval_s`` is the maintenance interval of the fleet, in seconds.
        """
        self._inboxes = inboxes
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._longest_wait_s = CONFIRMATION_WAIT_INTERVALS * interval_s
        self._handlers: dict[NodeId, MessageHandler] = {}
        self._peers: dict[NodeId, Peer] = {}
        """The worker of each node of the ring."""
        self._links: dict[NodeId, _Link] = {}
        """The links to other workers, by the worker's id."""

    @contextlib.contextmanager
    def receive(self, node: NodeId, handler: MessageHandler) -> Iterator[None]:
        """Call ``handler`` with the messages for ``node``, a node of this worker, while the context is open."""
        self._handlers[node] = handler
        try:
            yield
        finally:
            # Another node of this worker may have joined under this id, if this node had lost its lease unnoticed.
            if self._handlers.get(node) == handler:
                del self._handlers[node]

    def on_ring_changed(self, ring: RingView) -> None:
        """Learn from ``ring`` which worker runs each node; discard links to workers that have left the ring."""
        self._peers = {info.id: peer for info in ring.nodes if (peer := peer_of(info)) is not None}
        present = {peer.id for peer in self._peers.values()}
        for worker, link in list(self._links.items()):
            if worker not in present and not link.is_sending:
                link.stop_timer()
                del self._links[worker]

    def post(
        self, messages: Iterable[NodeMessage], *, is_urgent: bool = False, can_wait: bool = False
    ) -> list[NodeMessage]:
        """Send messages in the background; return those that the caller must put into the nodes' inboxes in Redis.

        A message is returned if the worker cannot be reached, the message is too large, or too many are queued.

        - ``is_urgent``: all messages to other workers are returned.
        - ``can_wait``: the messages wait for the next request to or from the other worker, for at most
          ``CONFIRMATION_WAIT_INTERVALS``.
        """
        rest: list[NodeMessage] = []
        for node, some in groupby(messages, key=itemgetter(0)):
            if handler := self._handlers.get(node):
                received = [message for _, message in some]
                NODE_MESSAGES.labels("process").inc(len(received))
                self._tasks.start(handler(received))
            else:
                link = None if is_urgent else self._link(node)
                rest += [each for each in some if link is None or not self._enqueue(link, each, can_wait=can_wait)]
        if rest:
            NODE_MESSAGES.labels("inbox").inc(len(rest))
        return rest

    def on_request(self, sender: NodeId, body: bytes) -> bytes:
        """Process the messages in a request from the worker ``sender``; return the response.

        The response contains the ids of the receiving nodes that this worker does not run, and the messages that are
        waiting for the sender. Raises :class:`PeerProtocolError` if the request is malformed.
        """
        try:
            messages = _batch.decode(body)
        except msgspec.MsgspecError as error:
            raise PeerProtocolError(f"Messages of {sender[:8]} are malformed: {error}.", reason="malformed") from error
        absent = self._receive(messages)
        waiting: list[NodeMessage] = []
        link = self._links.get(sender)
        if link is not None and not link.is_sending:
            waiting = link.take_batch()
            if not link.queue:
                link.stop_timer()
            NODE_MESSAGES.labels("peer").inc(len(waiting))
        return _encoder.encode(_Response(sorted(absent), _to_wire(waiting)))

    def _receive(self, messages: Iterable[_WireMessage]) -> Collection[NodeId]:
        """Pass received messages to their nodes; return the ids of the nodes that this worker does not run."""
        by_node: dict[NodeId, list[InboxMessage]] = {}
        for each in messages:
            by_node.setdefault(each.node, []).append(InboxMessage(each.kind, each.sender, each.payload))
        for node, received in by_node.items():
            if handler := self._handlers.get(node):
                self._tasks.start(handler(received))
        return by_node.keys() - self._handlers.keys()

    def _link(self, node: NodeId) -> _Link | None:
        """Return the link to the worker that runs a node; None if messages to the node must go through its inbox."""
        peer = self._peers.get(node)
        if peer is None:
            return None
        link = self._links.get(peer.id)
        if link is None:
            link = self._links[peer.id] = _Link(peer)
        return link if self._clock.monotonic_s() >= link.retry_s else None

    def _enqueue(self, link: _Link, message: NodeMessage, *, can_wait: bool) -> bool:
        """Queue a message for a worker; return False if the message is too large or the queue is full."""
        size, loop = len(message[1].payload), asyncio.get_running_loop()
        if size > MAX_BATCH_BYTES or link.queued_bytes + size > MAX_QUEUED_BYTES:
            return False
        link.queue.append(message)
        link.queued_bytes += size
        due_s = loop.time() + (self._longest_wait_s if can_wait else GATHERING_S)
        if not link.is_sending and (link.timer is None or due_s < link.timer.when()):
            link.stop_timer()
            link.timer = loop.call_at(due_s, self._start_sending, link)
        return True

    def _start_sending(self, link: _Link) -> None:
        link.timer, link.is_sending = None, True
        self._tasks.start(self._send_queue(link))

    async def _send_queue(self, link: _Link) -> None:
        try:
            while link.queue:
                messages = link.take_batch()
                absent = await self._send(link, messages)
                rest = [message for message in messages if message[0] in absent]
                NODE_MESSAGES.labels("peer").inc(len(messages) - len(rest))
                NODE_MESSAGES.labels("inbox").inc(len(rest))
                try:
                    await self._inboxes.send(rest)
                except StoreUnavailable as error:
                    log.warning("sending messages to nodes failed, will retry", messages=len(rest), error=str(error))
                if link.queue:
                    await asyncio.sleep(GATHERING_S)
        finally:
            link.is_sending = False

    async def _send(self, link: _Link, messages: list[NodeMessage]) -> Collection[NodeId]:
        """Send messages to a worker in one request; return the ids of the nodes that did not receive theirs."""
        nodes = {node for node, _ in messages}
        if self._clock.monotonic_s() < link.retry_s:
            return nodes
        body = _encoder.encode(_to_wire(messages))
        try:
            response = _response.decode(
                await self._client.request(
                    link.peer, NODE_MESSAGES_VERB, body, timeout_s=REQUEST_TIMEOUT_S, max_bytes=_MAX_RESPONSE_BYTES
                )
            )
        except (PeerUnreachable, PeerProtocolError, msgspec.MsgspecError) as error:
            if link.retry_s == -inf:
                log.warning("worker unreachable, inboxes used", worker=link.peer.id[:8], error=str(error))
            link.retry_s = self._clock.monotonic_s() + RETRY_S
            return nodes
        if link.retry_s != -inf:
            link.retry_s = -inf
            log.info("worker connection restored", worker=link.peer.id[:8])
        self._receive(response.messages)
        return response.absent


def _to_wire(messages: Iterable[NodeMessage]) -> list[_WireMessage]:
    return [_WireMessage(node, each.kind, each.sender, each.payload) for node, each in messages]
