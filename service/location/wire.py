"""What nodes say to their neighbours, and its bytes. A link keeps the order of what is sent along it.

What is malformed, or larger than filters can be, raises :class:`PeerRefused`. Bytes are ``version kind …``, integers
big-endian. A set of bits is the number of its bits and then either their positions or the whole row, whichever is
shorter: the paper's *diff compression*.
"""

import struct

import msgspec

from service.errors import PeerRefused
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
        raise PeerRefused(f"A message has {len(data)} bytes; none has more than {MOST_BYTES}.", reason="size")
    try:
        version, kind = data[:2]
        if version != VERSION:
            raise PeerRefused(f"A message has version {version}, not {VERSION}.", reason="version")
        reader = _Reader(data[2:])
        message = reader.message(_KINDS[kind])
        reader.end()
    except (ValueError, IndexError, struct.error) as error:
        raise PeerRefused(f"A message cannot be read: {error}.", reason="malformed") from error
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
