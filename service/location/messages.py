"""Messages between neighbouring nodes, their binary encoding, and ordered streams of message batches.

The encoding begins with the version and the kind of the message, one byte each. Integers are big-endian. A set of bits
is encoded as the number of bits that are set, followed by either their positions or the whole filter, whichever is
shorter (the paper's *diff compression*). :class:`PeerProtocolError` is raised for malformed data and for filters beyond
the maximum size.

Requests may be lost or repeated, or may reach a worker that has been restarted. Therefore the messages from one worker
to another form a *stream* of numbered batches. A worker that begins a new stream has discarded what it knew about the
other worker. A worker rejects a batch that belongs to an earlier stream. The sender of the batch then begins a new
stream and discards its own state too.
"""

import struct
from typing import Annotated

import msgspec

from service.errors import PeerProtocolError
from service.location.bloom_filters import MAX_WIDTH, FilterShape
from service.model import NodeId


class Hello(msgspec.Struct, frozen=True):
    """The first message on a link, with the parameters of the sender's Bloom filters.

    It is sent again when these parameters change. It also tells the receiver that the sender does not have the
    receiver's filters yet.
    """

    shape: FilterShape


class FilterUpdate(msgspec.Struct, frozen=True, gc=False):
    """Asks the receiver to change bits in one row of the Bloom filter that it has received from the sender.

    - ``shape``: the parameters of the filter.
    - ``source``: the node with the documents that caused the update.
    - ``row``: the number of the row. Row i contains the documents that the receiver can reach through the sender in i
      hops. Row 1 contains the sender's own documents.
    - ``sets``, ``clears``: integers whose 1 bits are the bits to set and to clear.
    """

    shape: FilterShape
    source: NodeId
    row: int
    sets: int
    clears: int


class Ignore(msgspec.Struct, frozen=True, gc=False):
    """Asks the receiver to send no more updates about the documents of the node ``source``.

    This applies to the row ``row`` and all deeper rows of the Bloom filter that the receiver sends. The sender of
    this message does not need these updates, because it gets them from another neighbour. The path to ``source``
    through that neighbour is not longer than the path through the receiver.
    """

    source: NodeId
    row: int


class SourcesLost(msgspec.Struct, frozen=True):
    """Announces that the sender no longer gets updates about the documents of the nodes in ``sources``.

    The receiver therefore no longer relies on the sender for these updates. It resumes sending them to the sender,
    even if the sender has stopped them with :class:`Ignore`.
    """

    sources: tuple[NodeId, ...]


class RefreshRequest(msgspec.Struct, frozen=True):
    """Asks the node ``source`` to send all bits of its own Bloom filter to all its neighbours again.

    The request is forwarded from node to node until it reaches ``source``.
    """

    source: NodeId


Message = Hello | FilterUpdate | Ignore | SourcesLost | RefreshRequest


class SendToNeighbour(msgspec.Struct, frozen=True, gc=False):
    """An instruction to the caller to send ``message`` to the neighbour ``to``."""

    to: NodeId
    message: Message


VERSION = 1
MAX_MESSAGE_BYTES = 2 * (MAX_WIDTH // 8) + 64
"""Maximum size of an encoded message."""

_KINDS = (Hello, FilterUpdate, Ignore, SourcesLost, RefreshRequest)
_SHAPE = struct.Struct(">IIBB")
_NODE = struct.Struct(">20s")
_ROW = struct.Struct(">B")
_COUNT = struct.Struct(">I")


def encode(message: Message) -> bytes:
    """Return the encoded message. The node ids in the message must be 40 hex digits."""
    head = bytes((VERSION, _KINDS.index(type(message))))
    match message:
        case Hello(shape):
            return head + _shape(shape)
        case FilterUpdate(shape, source, row, sets, clears):
            body = _shape(shape) + bytes.fromhex(source) + _ROW.pack(row)
            return head + body + _bits(sets, shape.width) + _bits(clears, shape.width)
        case Ignore(source, row):
            return head + bytes.fromhex(source) + _ROW.pack(row)
        case SourcesLost(sources):
            return head + _COUNT.pack(len(sources)) + b"".join(map(bytes.fromhex, sources))
        case RefreshRequest(source):
            return head + bytes.fromhex(source)


def encoded_size(message: Message) -> int:
    """Return the size of the encoded message in bytes, without encoding it."""
    match message:
        case FilterUpdate(shape, _, _, sets, clears):
            return 33 + _bits_size(sets.bit_count(), shape.width) + _bits_size(clears.bit_count(), shape.width)
        case Hello():
            return 12
        case Ignore():
            return 23
        case SourcesLost(sources):
            return 6 + 20 * len(sources)
        case RefreshRequest():
            return 22


def decode(data: bytes) -> Message:
    """Return the decoded message. Raises :class:`PeerProtocolError` for malformed data."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise PeerProtocolError(
            f"A message has {len(data)} bytes; none has more than {MAX_MESSAGE_BYTES}.", reason="size"
        )
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


def _shape(shape: FilterShape) -> bytes:
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
        if kind is FilterUpdate:
            shape, source, (row,) = self._shape(), self._node(), self._take(_ROW)
            return FilterUpdate(shape, source, row, self._bits(shape.width), self._bits(shape.width))
        if kind is Ignore:
            return Ignore(self._node(), *self._take(_ROW))
        if kind is SourcesLost:
            (count,) = self._take(_COUNT)
            if count * _NODE.size != len(self._data) - self._at:
                raise ValueError("it names more or less sources than it says")
            return SourcesLost(tuple(self._node() for _ in range(count)))
        return RefreshRequest(self._node())

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

    def _shape(self) -> FilterShape:
        return FilterShape(*self._take(_SHAPE))

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
MAX_FRAMES = 4096


class StreamBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a stream. A stream is the ordered sequence of messages from one worker to another.

    - ``sender_stream``: the id of this stream, which the sender has chosen.
    - ``receiver_stream``: the id of the receiver's stream to the sender; None if the sender has received no batch
      since its last restart.
    - ``number``: the sequence number of the batch in its stream, from 0.
    - ``frames``: the encoded messages.
    """

    sender_stream: StreamId
    receiver_stream: StreamId | None
    number: Annotated[int, msgspec.Meta(ge=0)]
    frames: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_FRAMES)]


class Stream:
    """The state of one worker's exchange of messages with one other worker.

    Each of the two workers sends its messages as a stream, an ordered sequence of numbered batches. So there are two
    streams, one in each direction.
    """

    def __init__(self, sender_stream: StreamId) -> None:
        """Begin this worker's stream with the id ``sender_stream``, which must never have been used before."""
        self.restart(sender_stream)

    def restart(self, sender_stream: StreamId) -> None:
        """Discard all state, and begin a new stream of this worker with the id ``sender_stream``.

        The id must never have been used before.
        """
        self._own_stream = sender_stream
        self._peer_stream: StreamId | None = None
        self._sent_count = 0
        self._received_count = 0

    def next_batch(self, frames: tuple[bytes, ...]) -> StreamBatch:
        """Return the next batch of this worker's stream, with the encoded messages ``frames``.

        The caller must send the batch repeatedly until it has been delivered.
        """
        return StreamBatch(self._own_stream, self._peer_stream, self._sent_count, frames)

    def is_current(self, batch: StreamBatch) -> bool:
        """Return whether ``batch``, which this worker created, belongs to the current stream of this worker."""
        return batch.sender_stream == self._own_stream

    def on_delivered(self, batch: StreamBatch) -> None:
        """Record that the other worker has received ``batch``, so that the next batch gets the next sequence number."""
        if self.is_current(batch):
            self._sent_count = batch.number + 1

    def is_restart(self, batch: StreamBatch) -> bool:
        """Return whether the received ``batch`` begins a new stream of the other worker.

        If it does, the caller must restart this worker's own stream too.
        """
        return (
            self._peer_stream not in {None, batch.sender_stream}
            and batch.number == 0
            and batch.receiver_stream != self._own_stream
        )

    def receive(self, batch: StreamBatch) -> tuple[bytes, ...]:
        """Return the encoded messages in the received ``batch``; an empty tuple if the batch was already received.

        Raises :class:`PeerProtocolError` with the reason ``stream`` if the batch belongs to an earlier stream, or if a
        preceding batch is missing.
        """
        if batch.receiver_stream not in {None, self._own_stream} or self._peer_stream not in {
            None,
            batch.sender_stream,
        }:
            raise PeerProtocolError("A batch belongs to a stream that is over.", reason="stream")
        if batch.number > self._received_count:
            raise PeerProtocolError(f"Batch {batch.number} came before batch {self._received_count}.", reason="stream")
        self._peer_stream = batch.sender_stream
        if batch.number < self._received_count:
            return ()
        self._received_count += 1
        return batch.frames
