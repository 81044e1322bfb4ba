"""Streams of two workers over a network that loses, repeats and delays, either of which may restart at any time."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from service.errors import PeerProtocolError
from service.location.messages import Stream, StreamBatch

_names = count()


def name() -> bytes:
    return next(_names).to_bytes(8, "big")


class End:
    """One end: the frames it enqueued in its current stream, and those it received since its last restart."""

    def __init__(self) -> None:
        self.stream = Stream(name())
        self.restart()

    def restart(self) -> None:
        self.stream.restart(name())
        self.enqueued: list[bytes] = []
        self.received: list[bytes] = []
        self._waiting: list[bytes] = []
        self._sent: StreamBatch | None = None

    def enqueue(self, frame: bytes) -> None:
        self.enqueued.append(frame)
        self._waiting.append(frame)

    def send(self) -> StreamBatch:
        """Return the pending batch, the same until it has been delivered."""
        if self._sent is None:
            self._sent, self._waiting = self.stream.next_batch(tuple(self._waiting)), []
        return self._sent

    def receive(self, batch: StreamBatch) -> bool:
        """Return whether the batch is accepted; otherwise the sender has to restart."""
        if self.stream.is_restart(batch):
            self.restart()
        try:
            self.received += self.stream.receive(batch)
        except PeerProtocolError:
            return False
        return True

    def on_response(self, batch: StreamBatch, *, is_accepted: bool) -> None:
        """Process the response to a batch of this end."""
        if not self.stream.is_current(batch):
            return
        if is_accepted:
            self._sent = None
            self.stream.on_delivered(batch)
        else:
            self.restart()


def exchange(sender: End, receiver: End) -> None:
    batch = sender.send()
    sender.on_response(batch, is_accepted=receiver.receive(batch))


STEPS = st.lists(st.tuples(st.sampled_from(("say", "send", "lose answer", "late", "forget")), st.booleans()))


def step(what: str, sender: End, receiver: End, frame: bytes, late: list[tuple[End, StreamBatch]]) -> None:
    match what:
        case "say":
            sender.enqueue(frame)
        case "send":
            exchange(sender, receiver)
        case "lose answer":
            receiver.receive(sender.send())
            late.append((receiver, sender.send()))
        case "late" if late:
            to, batch = late.pop()
            to.receive(batch)
        case "forget":
            sender.restart()


@given(STEPS)
def test_streams_deliver_once_and_in_order_and_restart_together(steps: list[tuple[str, bool]]) -> None:
    ends = End(), End()
    late: list[tuple[End, StreamBatch]] = []
    for number, (what, first) in enumerate(steps):
        step(what, ends[not first], ends[first], number.to_bytes(4, "big"), late)
        for one, other in (ends, ends[::-1]):
            assert one.received == sorted(set(one.received)), "in order, and once"
            if one.stream._peer_stream == other.stream._own_stream:
                assert one.received == other.enqueued[: len(one.received)], "without gaps"
    for _ in range(6):
        exchange(*ends)
        exchange(*ends[::-1])
    for one, other in (ends, ends[::-1]):
        assert one.stream._peer_stream == other.stream._own_stream
        assert one.received == other.enqueued
