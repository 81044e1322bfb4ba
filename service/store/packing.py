"""Subscriptions as the pages of a keyspace hold them: 28 bytes each, in the order of their positions.

====  =========================================================================
4     the identifier key
8     the beginning of the channel's id: with 24 bits of the key, no other has it
12    the user id
4     twice the seq, and 1 more for an end: of two, the greater is the newer
====  =========================================================================

A record's ``id`` is its channel and user, a character for each byte, so that it stands where its bytes do.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from service.clash.groups import KeyGroup
from service.clash.records import Position, Record
from service.errors import BadKey
from service.model import ChannelId, UserId

_RECORD = Struct(">I20sI")
_CHANNEL_BYTES = 8
_ID_BYTES = 20
_MOST_KEY = (1 << 32) - 1
_MOST_SEQ = (1 << 31) - 1
_CHANNELS_KEPT = 1_000

RECORD_BYTES = _RECORD.size


def mark_of(cid: ChannelId) -> bytes:
    """Return what tells a channel's subscriptions from others of the same key."""
    return bytes.fromhex(cid[: 2 * _CHANNEL_BYTES])


channel_mark = lru_cache(_CHANNELS_KEPT)(mark_of)
"""The same, for who asks for the same ones again and again."""


def record_id(cid: ChannelId, uid: UserId) -> str:
    """Return the id of a subscription's record."""
    return (channel_mark(cid) + urlsafe_b64decode(uid)).decode("latin-1")


def is_of(record: Record, mark: str) -> bool:
    """Say whether a record is of the channel with this mark (in latin-1)."""
    return record.id.startswith(mark)


def users(records: Sequence[Record]) -> list[UserId]:
    """Return whose subscriptions these are."""
    # Twelve bytes are sixteen characters and nothing is left over: all can be written at once.
    together = "".join([record.id[_CHANNEL_BYTES:] for record in records]).encode("latin-1")
    text = urlsafe_b64encode(together).decode()
    return [text[at : at + 16] for at in range(0, len(text), 16)]


def packed(record: Record) -> bytes:
    """Return a record's bytes. Raises :class:`BadKey` for one that no page can hold."""
    if not 0 <= record.seq <= _MOST_SEQ or not 0 <= record.key <= _MOST_KEY:
        raise BadKey(f"No page can hold {record}: keys have up to 32 bits, and seqs 31.")
    return _RECORD.pack(record.key, _id_bytes(record.id), record.seq << 1 | (not record.present))


def unpacked(page: bytes) -> tuple[Record, ...]:
    """Return the records of a page."""
    return tuple(
        [Record(key, name.decode("latin-1"), word >> 1, not word & 1) for key, name, word in _RECORD.iter_unpack(page)]
    )


def position_bytes(record: Record) -> bytes:
    """Return where a record stands."""
    return packed(record)[:-4]


def bounds(group: KeyGroup, after: Position | None = None) -> tuple[bytes, bytes]:
    """Return the first and the last place where records of a group can stand, beyond a position."""
    least = group.key.to_bytes(4) + bytes(_ID_BYTES)
    if after is not None and after[1]:
        beyond = int.from_bytes(after[0].to_bytes(4) + _id_bytes(after[1])) + 1
        least = max(least, beyond.to_bytes(4 + _ID_BYTES))
    elif after is not None:
        least = max(least, after[0].to_bytes(4) + bytes(_ID_BYTES))
    return least, group.last.to_bytes(4) + b"\xff" * _ID_BYTES


def _id_bytes(name: str) -> bytes:
    if len(name) != _ID_BYTES or max(name) > "\xff":
        raise BadKey(f"{name!r} is no id of a subscription: it needs {_ID_BYTES} bytes, of a channel and a user.")
    return name.encode("latin-1")
