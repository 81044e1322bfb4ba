"""What is located: a channel's content at one of its versions, named by its own digest.

Who looks for a content knows its digest from the channel's owner or from the store, so a copy proves itself, whoever
hands it over. Versions that leave the content as it was (notices) are the same document.
"""

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

import msgspec

from service.errors import PeerRefused
from service.model import Change, Entry

Digest = bytes
"""16 bytes of BLAKE2b; b"" where it is not known."""

DIGEST_BYTES = 16
LATEST = 10
"""So many of the latest entries are part of a content."""
MOST_BYTES = 4 * 1024 * 1024
"""No content is handed over that is larger."""
_LENGTH_BYTES = 4
_MOST_LATEST_BYTES = 1024 * 1024


class Content(msgspec.Struct, frozen=True, gc=False):
    """``memory`` is the base that polls compare with (opaque here); ``latest`` the latest entries, packed."""

    memory: bytes
    latest: bytes

    @property
    def size_bytes(self) -> int:
        """How much it is to keep, and to hand over."""
        return len(self.memory) + len(self.latest)


def digest_of(content: Content) -> Digest:
    """Return the content's name, the same in every process."""
    digest = blake2b(len(content.memory).to_bytes(_LENGTH_BYTES, "big"), digest_size=DIGEST_BYTES)
    digest.update(content.memory)
    digest.update(content.latest)
    return digest.digest()


def encode(content: Content) -> tuple[bytes, bytes, bytes]:
    """Return the bytes that :func:`decode` understands, in pieces, of which none is a copy."""
    return len(content.memory).to_bytes(_LENGTH_BYTES, "big"), content.memory, content.latest


def decode(data: memoryview) -> Content:
    """Return the content of these bytes. Raises :class:`PeerRefused` if they are none."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    if not _LENGTH_BYTES <= end <= len(data):
        raise PeerRefused("A content says that it is longer than it is.", reason="malformed")
    return Content(bytes(data[_LENGTH_BYTES:end]), bytes(data[end:]))


def newest(changes: Sequence[Change], before: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return a channel's latest entries, newest first, after changes (oldest first) to what they were before."""
    found: dict[str, Entry] = {}
    told = (change.entry for change in reversed(changes) if change.kind != "omission")
    for entry in chain(told, before):
        found.setdefault(entry.key, entry)
    return tuple(found.values())[:LATEST]


def packed(latest: Sequence[Entry]) -> bytes:
    """Return entries as they are part of a content; b"" for none."""
    return zlib.compress(msgspec.msgpack.encode(tuple(latest))) if latest else b""


def unpacked(latest: bytes) -> tuple[Entry, ...]:
    """Return the entries of a content. Raises :class:`PeerRefused` if they cannot be read."""
    if not latest:
        return ()
    try:
        return msgspec.msgpack.decode(
            zlib.decompressobj().decompress(latest, _MOST_LATEST_BYTES), type=tuple[Entry, ...]
        )
    except (zlib.error, msgspec.MsgspecError) as error:
        raise PeerRefused(f"A content's entries cannot be read: {error}.", reason="malformed") from error
