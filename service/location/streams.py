"""The order of what two workers say to each other, over requests that may be lost, repeated, or meet another life.

What a worker says to another one is a *stream* of numbered batches. Both ends of a pair forget together: who begins
a new stream has forgotten the other one, and a batch that belongs to streams before that is refused; the refusal
makes its sender begin anew as well.
"""

from typing import Annotated

import msgspec

from service.errors import PeerRefused

StreamId = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
MOST_FRAMES = 4096


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Part ``number`` (from 0) of the sender's stream ``mine``; ``yours`` is the receiver's as the sender knows it.

    ``yours`` is None as long as the sender has heard nothing since it began.
    """

    mine: StreamId
    yours: StreamId | None
    number: Annotated[int, msgspec.Meta(ge=0)]
    frames: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MOST_FRAMES)]


class Stream:
    """One worker's end of a pair."""

    def __init__(self, mine: StreamId) -> None:
        """Begin: nothing was said, nothing heard."""
        self.begin(mine)

    def begin(self, mine: StreamId) -> None:
        """Begin anew, under a name never used before."""
        self._mine = mine
        self._yours: StreamId | None = None
        self._said = 0
        self._heard = 0

    def next(self, frames: tuple[bytes, ...]) -> Batch:
        """Return what is to be sent, again and again until it has :meth:`arrived`."""
        return Batch(self._mine, self._yours, self._said, frames)

    def is_of(self, batch: Batch) -> bool:
        """Say whether this batch of ours belongs to the present stream."""
        return batch.mine == self._mine

    def arrived(self, batch: Batch) -> None:
        """Know that a batch has arrived."""
        if self.is_of(batch):
            self._said = batch.number + 1

    def begins(self, batch: Batch) -> bool:
        """Say whether the sender has begun anew since we heard of it: then we have to forget it, and begin as well."""
        return self._yours not in {None, batch.mine} and batch.number == 0 and batch.yours != self._mine

    def take(self, batch: Batch) -> tuple[bytes, ...]:
        """Return what is new in a batch; nothing if it came before. Raises :class:`PeerRefused` (``stream``)."""
        if batch.yours not in {None, self._mine} or self._yours not in {None, batch.mine}:
            raise PeerRefused("A batch belongs to a stream that is over.", reason="stream")
        if batch.number > self._heard:
            raise PeerRefused(f"Batch {batch.number} came before batch {self._heard}.", reason="stream")
        self._yours = batch.mine
        if batch.number < self._heard:
            return ()
        self._heard += 1
        return batch.frames
