"""Two workers over a network that loses, repeats and delays, each of which may forget the other at any time."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from service.errors import PeerProtocolError
from service.location.wire import Batch, Stream

_names = count()


def name() -> bytes:
    return next(_names).to_bytes(8, "big")


class End:
    """One end: what it said in its present stream, and what it heard since it forgot the other one last."""

    def __init__(self) -> None:
        self.stream = Stream(name())
        self.forget()

    def forget(self) -> None:
        self.stream.restart(name())
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self._waiting: list[bytes] = []
        self._sent: Batch | None = None

    def say(self, frame: bytes) -> None:
        self.said.append(frame)
        self._waiting.append(frame)

    def send(self) -> Batch:
        """Return what waits, the same until it has arrived."""
        if self._sent is None:
            self._sent, self._waiting = self.stream.next_batch(tuple(self._waiting)), []
        return self._sent

    def hear(self, batch: Batch) -> bool:
        """Return whether it is taken: else the other one has to forget us."""
        if self.stream.is_restart(batch):
            self.forget()
        try:
            self.heard += self.stream.receive(batch)
        except PeerProtocolError:
            return False
        return True

    def answered(self, batch: Batch, *, taken: bool) -> None:
        """Be told what became of a batch of ours."""
        if not self.stream.is_current(batch):
            return
        if taken:
            self._sent = None
            self.stream.on_delivered(batch)
        else:
            self.forget()


def exchange(sender: End, receiver: End) -> None:
    batch = sender.send()
    sender.answered(batch, taken=receiver.hear(batch))


STEPS = st.lists(st.tuples(st.sampled_from(("say", "send", "lose answer", "late", "forget")), st.booleans()))


def step(what: str, sender: End, receiver: End, frame: bytes, late: list[tuple[End, Batch]]) -> None:
    match what:
        case "say":
            sender.say(frame)
        case "send":
            exchange(sender, receiver)
        case "lose answer":
            receiver.hear(sender.send())
            late.append((receiver, sender.send()))
        case "late" if late:
            to, batch = late.pop()
            to.hear(batch)
        case "forget":
            sender.forget()


@given(STEPS)
def test_nothing_is_heard_twice_or_out_of_order_and_both_forget_together(steps: list[tuple[str, bool]]) -> None:
    ends = End(), End()
    late: list[tuple[End, Batch]] = []
    for number, (what, first) in enumerate(steps):
        step(what, ends[not first], ends[first], number.to_bytes(4, "big"), late)
        for one, other in (ends, ends[::-1]):
            assert one.heard == sorted(set(one.heard)), "in order, and once"
            if one.stream._peer_stream == other.stream._own_stream:
                assert one.heard == other.said[: len(one.heard)], "without gaps"
    for _ in range(6):
        exchange(*ends)
        exchange(*ends[::-1])
    for one, other in (ends, ends[::-1]):
        assert one.stream._peer_stream == other.stream._own_stream
        assert one.heard == other.said
