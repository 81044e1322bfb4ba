"""A stream of messages between two neighbouring workers, in order and without gaps.

Messages are sent in batches. A batch is sent repeatedly until the other worker accepts it; only then is the next batch
sent. After a gap, both ends restart from an empty state (:class:`service.location.messages.Stream`).
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from service.asyncio_tasks import BackgroundTasks
from service.errors import PeerProtocolError, PeerUnreachable
from service.location.messages import MAX_FRAMES, Stream, StreamBatch
from service.model import NodeId
from service.net.peer_client import MAX_REQUEST_BYTES, Peer, PeerClient
from service.observability.metrics import PEER_REFUSALS

STREAM_VERB = "tell"
"""The verb (last part of the URL) of a request with a batch of messages."""
_STREAM_BYTES = 8
_MAX_BATCH_BYTES = MAX_REQUEST_BYTES - 1024
_MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""Maximum size of the queued messages to one worker; if it is exceeded, the stream to that worker is reset."""
_MAX_ATTEMPTS = 4
_RETRY_S = 0.7
"""Delay in seconds before a batch is sent again. It is this long because other workers accept a new worker only after
their next heartbeats."""
_SEND_TIMEOUT_S = 5.0

log = structlog.get_logger(__name__)


class PeerStream:
    """This worker's end of a stream of messages to and from one other worker.

    ``on_reset`` is called with the other worker's id if both ends must restart from an empty state.
    """

    def __init__(
        self, peer: Peer, client: PeerClient, tasks: BackgroundTasks, on_reset: Callable[[NodeId], None]
    ) -> None:
        """Create this worker's end of a stream to ``peer``, without sending anything yet."""
        self.peer = peer
        self._client = client
        self._tasks = tasks
        self._on_reset = on_reset
        self._stream = Stream(secrets.token_bytes(_STREAM_BYTES))
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_sending = False

    def send(self, *frames: bytes) -> None:
        """Queue messages for sending; each of ``frames`` is one encoded message.

        Without ``frames``, an empty batch is sent to check that the other worker still has the state of this stream.
        """
        self._queue.extend(frames)
        self._queued_bytes += sum(map(len, frames))
        if self._queued_bytes > _MAX_QUEUED_BYTES:
            self._reset("it receives too slowly")
        elif not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send_queued())

    def receive(self, batch: StreamBatch) -> tuple[bytes, ...]:
        """Return the messages in a batch, or an empty tuple if the batch was received before.

        Raises :class:`PeerProtocolError` if earlier messages are missing. The sender must then restart its stream.
        """
        if self._stream.is_restart(batch):
            self._reset("it started again")
        return self._stream.receive(batch)

    async def _send_queued(self) -> None:
        try:
            has_more = True
            while has_more:
                batch = self._stream.next_batch(self._dequeue())
                try:
                    await self._send_batch(batch)
                except (PeerUnreachable, PeerProtocolError) as error:
                    if isinstance(error, PeerProtocolError):
                        PEER_REFUSALS.labels(error.reason).inc()
                    if self._stream.is_current(batch):
                        self._reset(str(error))
                has_more = bool(self._queue)
        finally:
            self._is_sending = False

    def _dequeue(self) -> tuple[bytes, ...]:
        """Remove and return as many queued messages as fit into one batch."""
        frames: list[bytes] = []
        size = 0
        while self._queue and len(frames) < MAX_FRAMES and size + len(self._queue[0]) <= _MAX_BATCH_BYTES:
            frames.append(self._queue.popleft())
            size += len(frames[-1]) + 5
        self._queued_bytes -= sum(map(len, frames))
        return tuple(frames)

    async def _send_batch(self, batch: StreamBatch) -> None:
        body = msgspec.msgpack.encode(batch)
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                await self._client.request(self.peer, STREAM_VERB, body, timeout_s=_SEND_TIMEOUT_S, max_bytes=0)
            except (PeerUnreachable, PeerProtocolError) as error:
                is_restart = getattr(error, "reason", "") == "stream"
                if not attempts_left or not self._stream.is_current(batch) or is_restart:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                self._stream.on_delivered(batch)
                return

    def _reset(self, reason: str) -> None:
        log.info("neighbour dropped", worker=self.peer.id[:8], reason=reason)
        self._queue.clear()
        self._queued_bytes = 0
        self._stream.restart(secrets.token_bytes(_STREAM_BYTES))
        self._on_reset(self.peer.id)
