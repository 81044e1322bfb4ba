"""Messages between neighbouring nodes, their encoding, and the streams of batches that keep their order.

What is malformed, or larger than filters can be, raises :class:`PeerProtocolError`. Bytes are ``version kind …``,
integers big-endian. A set of bits is the number of its bits and then either their positions or the whole row, whichever
is shorter: the paper's *diff compression*.

Requests may be lost, repeated, or meet another life of a worker. What one worker sends to another is a *stream* of
numbered batches. Both ends of a pair forget together: a worker that begins a new stream has forgotten the other one,
and a batch of an earlier stream is refused, so that its sender begins anew as well.
"""

import struct
from typing import Annotated

import msgspec

from service.errors import PeerProtocolError
from service.location.bloom import MOST_WIDTH, Shape
from service.model import NodeId


class Hello(msgspec.Struct, frozen=True):
    """The first word on a link, and again when the sender has taken another shape: it knows nothing of you yet."""

    shape: Shape


class Update(msgspec.Struct, frozen=True, gc=False):
    """Bits of your row ``row`` about me: these are set, those are clear.

    ``source`` is the node whose documents made the wave; row 1 is about the sender's own documents.
    """

    shape: Shape
    source: NodeId
    row: int
    sets: int
    clears: int


class Ignore(msgspec.Struct, frozen=True, gc=False):
    """I hear of this source by a way that is not longer: send me no more of it for this row or a deeper one."""

    source: NodeId
    row: int


class Lost(msgspec.Struct, frozen=True):
    """I hear of these sources no more: do not wait for me, and do not ignore them for me."""

    sources: tuple[NodeId, ...]


class Want(msgspec.Struct, frozen=True):
    """Towards the source, hop by hop: tell everybody all you have once more."""

    source: NodeId


Message = Hello | Update | Ignore | Lost | Want


class Send(msgspec.Struct, frozen=True, gc=False):
    """What is to be done: this message goes to this neighbour."""

    to: NodeId
    message: Message


VERSION = 1
MOST_BYTES = 2 * (MOST_WIDTH // 8) + 64
"""No message is longer."""

_KINDS = (Hello, Update, Ignore, Lost, Want)
_SHAPE = struct.Struct(">IIBB")
_NODE = struct.Struct(">20s")
_ROW = struct.Struct(">B")
_COUNT = struct.Struct(">I")


def encode(message: Message) -> bytes:
    """Return the message's bytes; nodes are 40 hex digits."""
    head = bytes((VERSION, _KINDS.index(type(message))))
    match message:
        case Hello(shape):
            return head + _shape(shape)
        case Update(shape, source, row, sets, clears):
            body = _shape(shape) + bytes.fromhex(source) + _ROW.pack(row)
            return head + body + _bits(sets, shape.width) + _bits(clears, shape.width)
        case Ignore(source, row):
            return head + bytes.fromhex(source) + _ROW.pack(row)
        case Lost(sources):
            return head + _COUNT.pack(len(sources)) + b"".join(map(bytes.fromhex, sources))
        case Want(source):
            return head + bytes.fromhex(source)


def size(message: Message) -> int:
    """Return how many bytes :func:`encode` makes of it, in much less time."""
    match message:
        case Update(shape, _, _, sets, clears):
            return 33 + _bits_size(sets.bit_count(), shape.width) + _bits_size(clears.bit_count(), shape.width)
        case Hello():
            return 12
        case Ignore():
            return 23
        case Lost(sources):
            return 6 + 20 * len(sources)
        case Want():
            return 22


def decode(data: bytes) -> Message:
    """Return the message of these bytes."""
    if len(data) > MOST_BYTES:
        raise PeerProtocolError(f"A message has {len(data)} bytes; none has more than {MOST_BYTES}.", reason="size")
    try:
        version, kind = data[:2]
        if version != VERSION:
            raise PeerProtocolError(f"A message has version {version}, not {VERSION}.", reason="version")
        reader = _Reader(data[2:])
        message = reader.message(_KINDS[kind])
        reader.end()
    except (ValueError, IndexError, struct.error) as error:
        raise PeerProtocolError(f"A message cannot be read: {error}.", reason="malformed") from error
    return message


def _shape(shape: Shape) -> bytes:
    return _SHAPE.pack(shape.generation, shape.width, shape.hashes, shape.depth)


def _position_bytes(width: int) -> int:
    return max(1, ((width - 1).bit_length() + 7) // 8)


def _bits_size(count: int, width: int) -> int:
    return _COUNT.size + min(count * _position_bytes(width), (width + 7) // 8)


def _bits(bits: int, width: int) -> bytes:
    count, each, row = bits.bit_count(), _position_bytes(width), (width + 7) // 8
    if count * each >= row:
        return _COUNT.pack(count) + bits.to_bytes(row, "big")
    positions = []
    while bits:
        lowest = bits & -bits
        positions.append((lowest.bit_length() - 1).to_bytes(each, "big"))
        bits ^= lowest
    return _COUNT.pack(count) + b"".join(positions)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def message(self, kind: type[Message]) -> Message:
        if kind is Hello:
            return Hello(self._shape())
        if kind is Update:
            shape, source, (row,) = self._shape(), self._node(), self._take(_ROW)
            return Update(shape, source, row, self._bits(shape.width), self._bits(shape.width))
        if kind is Ignore:
            return Ignore(self._node(), *self._take(_ROW))
        if kind is Lost:
            (count,) = self._take(_COUNT)
            if count * _NODE.size != len(self._data) - self._at:
                raise ValueError("it names more or less sources than it says")
            return Lost(tuple(self._node() for _ in range(count)))
        return Want(self._node())

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError("it goes on where it should end")

    def _take(self, form: struct.Struct) -> tuple[int, ...]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def _node(self) -> NodeId:
        (raw,) = _NODE.unpack_from(self._data, self._at)
        self._at += _NODE.size
        return str(raw.hex())

    def _shape(self) -> Shape:
        return Shape(*self._take(_SHAPE))

    def _bits(self, width: int) -> int:
        (count,) = self._take(_COUNT)
        each, row = _position_bytes(width), (width + 7) // 8
        length = min(count * each, row)
        data = self._data[self._at : self._at + length]
        self._at += length
        if count * each >= row:
            bits = int.from_bytes(data, "big")
        else:
            found = bytearray(row)
            for start in range(0, len(data), each):
                position = int.from_bytes(data[start : start + each], "big")
                found[position >> 3] |= 1 << (position & 7)
            bits = int.from_bytes(found, "little")
        if len(data) != length or bits >> width or bits.bit_count() != count:
            raise ValueError("its bits are not what it says")
        return bits


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
        """Return what is new in a batch; nothing if it came before. Raises :class:`PeerProtocolError` (``stream``)."""
        if batch.yours not in {None, self._mine} or self._yours not in {None, batch.mine}:
            raise PeerProtocolError("A batch belongs to a stream that is over.", reason="stream")
        if batch.number > self._heard:
            raise PeerProtocolError(f"Batch {batch.number} came before batch {self._heard}.", reason="stream")
        self._yours = batch.mine
        if batch.number < self._heard:
            return ()
        self._heard += 1
        return batch.frames
