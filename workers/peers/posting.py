"""What neighbours are told, in order and without gaps, or else both begin anew."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from service.errors import PeerRefused, PeerSilent
from service.location.streams import MOST_FRAMES, Batch, Stream
from service.metrics import PEER_REFUSALS
from service.model import NodeId
from service.net.peers import MOST_REQUEST_BYTES, Peer, PeerClient
from workers.tasks import Tasks

TELL = "tell"
_STREAM_BYTES = 8
_MOST_BATCH_BYTES = MOST_REQUEST_BYTES - 1024
_MOST_WAITING_BYTES = 8 * 1024 * 1024
"""A neighbour that is told more than it takes is forgotten, and told all anew once it is back."""
_TRIES = 4
_AGAIN_S = 0.7
"""Who has just joined is a stranger until the others' next heartbeats."""
_WITHIN_S = 5.0

log = structlog.get_logger(__name__)


class Post:
    """Our end of what we and one other worker say to each other. ``over`` is called when both have to forget it."""

    def __init__(self, peer: Peer, client: PeerClient, tasks: Tasks, over: Callable[[NodeId], None]) -> None:
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
        """Return what is new in what the other one says. Raises :class:`PeerRefused` if it has to begin anew."""
        if self._stream.begins(batch):
            self._give_up("it began anew")
        return self._stream.take(batch)

    async def _send(self) -> None:
        try:
            more = True
            while more:
                batch = self._stream.next(self._taken())
                try:
                    await self._send_batch(batch)
                except (PeerSilent, PeerRefused) as error:
                    if isinstance(error, PeerRefused):
                        PEER_REFUSALS.labels(error.reason).inc()
                    if self._stream.is_of(batch):
                        self._give_up(str(error))
                more = bool(self._waiting)
        finally:
            self._sending = False

    def _taken(self) -> tuple[bytes, ...]:
        frames: list[bytes] = []
        size = 0
        while self._waiting and len(frames) < MOST_FRAMES and size + len(self._waiting[0]) <= _MOST_BATCH_BYTES:
            frames.append(self._waiting.popleft())
            size += len(frames[-1]) + 5
        self._waiting_bytes -= sum(map(len, frames))
        return tuple(frames)

    async def _send_batch(self, batch: Batch) -> None:
        body = msgspec.msgpack.encode(batch)
        for left in reversed(range(_TRIES)):
            try:
                await self._client.ask(self.peer, TELL, body, within_s=_WITHIN_S, most_bytes=0)
            except (PeerSilent, PeerRefused) as error:
                if not left or not self._stream.is_of(batch) or getattr(error, "reason", "") == "stream":
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                self._stream.arrived(batch)
                return

    def _give_up(self, why: str) -> None:
        log.info("a neighbour is forgotten", worker=self.peer.id[:8], why=why)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._stream.begin(secrets.token_bytes(_STREAM_BYTES))
        self._over(self.peer.id)
