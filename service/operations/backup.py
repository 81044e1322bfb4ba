"""``coronet backup``: copies the data of a running store to a file. This module also defines the format of the file.

A backup is a gzip file (RFC 1952) that contains a sequence of frames. Each frame is msgpack, preceded by its length
(4 bytes, big-endian). The first frame is the :class:`Header`. The last is the :class:`Footer`, with the record counts
and a checksum. The frames between them are the records (:mod:`service.store.backup.backup_records`).

A backup is rejected as a whole if it ends early, if its content does not match the checksum, or if there is data after
the footer.
"""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Final

import msgspec

from service.errors import UserError
from service.private_files import open_private
from service.settings import Settings
from service.store import opened
from service.store.backup.backup_records import (
    BackupOrigin,
    ChannelRecord,
    FanOutRecord,
    KeyRecord,
    Record,
    UserRecord,
    check_record,
)
from service.store.backup.export import StoreExport

FORMAT: Final = 1
"""Version of the file format. A program rejects backups in a newer version of the format."""
_COMPRESSION_LEVEL: Final = 3
_LENGTH_BYTES: Final = 4
_MAX_FRAME_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of a frame in bytes, equal to the maximum size of a value in Redis. A longer frame means that the file
is damaged."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="coronet backup"):
    """The first frame of a backup.

    - ``format`` is the version of the file format.
    - ``product_version`` is the version of Coronet that wrote the backup.
    - ``origin`` describes the store from which the backup was made, and states when the backup began.
    """

    format: int
    product_version: str
    origin: BackupOrigin


class Counts(msgspec.Struct, array_like=True):
    """The counts of users, channels and other keys in a backup.

    A user or channel that changed during the backup may be counted twice.
    """

    users: int = 0
    channels: int = 0
    others: int = 0

    def add(self, record: Record) -> None:
        """Count ``record`` as a user, a channel or another key."""
        self.users += isinstance(record, UserRecord)
        self.channels += isinstance(record, ChannelRecord)
        self.others += isinstance(record, KeyRecord)


class Footer(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The last frame of a backup: the record counts, and a checksum.

    ``checksum`` is the SHA-256 of all other frames, including their length fields.
    """

    counts: Counts
    checksum: bytes


_decoder: Final = msgspec.msgpack.Decoder(Header | Footer | FanOutRecord | UserRecord | ChannelRecord | KeyRecord)


class BackupFileWriter:
    """Writes a backup to a binary file, frame by frame."""

    def __init__(self, file: IO[bytes], product_version: str, origin: BackupOrigin) -> None:
        """Write the header to ``file``. The caller must close the file after :meth:`finish`.

        - ``product_version`` is this version of Coronet.
        - ``origin`` describes the store, and states when the backup began.
        """
        self._gzip = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0)
        self._digest = hashlib.sha256()
        self.counts = Counts()
        self._write(Header(FORMAT, product_version, origin))

    def add(self, record: Record) -> None:
        """Write a record."""
        self._write(record)
        self.counts.add(record)

    def finish(self) -> None:
        """Write the footer. Without it, the file would be rejected as incomplete."""
        self._write(Footer(self.counts, self._digest.digest()))
        self._gzip.close()

    def _write(self, frame: Header | Footer | Record) -> None:
        packed = msgspec.msgpack.encode(frame)
        framed = len(packed).to_bytes(_LENGTH_BYTES) + packed
        self._digest.update(framed)
        self._gzip.write(framed)


def check_file(file: IO[bytes]) -> tuple[Header, Counts]:
    """Read a whole backup; return its header and its record counts.

    Raises :class:`UserError` if the file is not a backup, is truncated or altered, or needs a newer version of Coronet.
    """
    header, counts = _read_header(file), Counts()
    file.seek(0)
    footer: Footer | None = None
    for frame in _frames(file):
        if isinstance(frame, Footer):
            footer = frame
        elif not isinstance(frame, Header):
            try:
                check_record(frame)
            except ValueError as error:
                raise UserError(f"The backup is damaged: {error}.") from error
            counts.add(frame)
    if footer is None or counts != footer.counts:
        raise UserError("The backup is damaged: the numbers of its records are not those in its footer.")
    return header, counts


def read_records(file: IO[bytes]) -> Iterator[Record]:
    """Yield all records of a backup, from the beginning of the file.

    The file must have been checked with :func:`check_file`.
    """
    file.seek(0)
    for frame in _frames(file):
        if not isinstance(frame, Header | Footer):
            yield frame


def _read_header(file: IO[bytes]) -> Header:
    """Return the header of a backup.

    Raises :class:`UserError` if the file is not a backup or has a newer format. For a newer format, the error states
    the version of Coronet that wrote the file.
    """
    file.seek(0)
    frames = _raw_frames(file)
    try:
        first = next(frames, b"")
        # Other fields of the header may have changed in a newer format.
        tag, version, product_version, *_ = msgspec.msgpack.decode(first, type=list[object])
    except (msgspec.MsgspecError, ValueError) as error:
        raise UserError("The file is no backup of Coronet.") from error
    if tag != "coronet backup" or not isinstance(version, int):
        raise UserError("The file is no backup of Coronet.")
    if version > FORMAT:
        raise UserError(
            f"The backup was made by Coronet {product_version} in format {version}, and this version reads formats up "
            f"to {FORMAT}. Restore it with that version or a newer one."
        )
    header = _decode(first)
    if not isinstance(header, Header):
        raise UserError("The file is no backup of Coronet.")
    return header


def _frames(file: IO[bytes]) -> Iterator[Header | Footer | Record]:
    """Yield all frames of a backup, and verify the checksum in the footer.

    Raises :class:`UserError` if the checksum is wrong, if the footer is missing, or if another frame follows the
    footer.
    """
    digest = hashlib.sha256()
    footer: Footer | None = None
    for packed in _raw_frames(file):
        if footer is not None:
            raise UserError("The backup is damaged: it goes on after its footer.")
        frame = _decode(packed)
        if isinstance(frame, Footer):
            footer = frame
            if footer.checksum != digest.digest():
                raise UserError("The backup is damaged: its content does not have the checksum in its footer.")
        else:
            digest.update(len(packed).to_bytes(_LENGTH_BYTES) + packed)
        yield frame
    if footer is None:
        raise UserError("The backup is incomplete: it ends before its footer. Was its disk full, or was it cut off?")


def _decode(packed: bytes) -> Header | Footer | Record:
    try:
        frame: Header | Footer | Record = _decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise UserError(f"The backup is damaged ({error}).") from error
    return frame


def _raw_frames(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the frames of a backup as bytes. Raises :class:`UserError` if the file is damaged or ends early."""
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as content:
            while length := content.read(_LENGTH_BYTES):
                size = int.from_bytes(length)
                packed = content.read(size) if len(length) == _LENGTH_BYTES and size <= _MAX_FRAME_BYTES else b""
                if len(packed) < size or not packed:
                    raise UserError("The backup is damaged or incomplete: a frame is shorter than its length says.")
                yield packed
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"The file is no backup of Coronet, or is damaged or incomplete ({error}).") from error


def describe_counts(counts: Counts) -> str:
    """Return a text that states how many people and channels a backup contains, such as "3 people, 120 channels"."""
    return f"{describe_people(counts.users)}, {counts.channels:,} channel{'' if counts.channels == 1 else 's'}"


def describe_people(count: int) -> str:
    """Return a text that states a number of people, such as "1 person" or "3 people"."""
    return f"{count:,} {'person' if count == 1 else 'people'}"


async def back_up(settings: Settings, file: IO[bytes]) -> str:
    """Write a backup of the store to the binary file ``file``; return a summary. Programs may keep running meanwhile.

    Raises :class:`service.errors.OperationalError` if the backup cannot be completed. The file must then be discarded.
    """
    async with opened(settings) as store:
        reader = StoreExport(store.redis)
        target = BackupFileWriter(file, version("coronet"), await reader.origin())
        async for record in reader.records():
            target.add(record)
        target.finish()
    return f"Backed up {describe_counts(target.counts)}."


@contextmanager
def new_file(name: str) -> Iterator[IO[bytes]]:
    """Open a new file (mode 0600) for writing. If ``name`` is "-", standard output is used instead.

    The file is given its name only when the context ends without an error. Therefore no incomplete file ever has this
    name. Raises :class:`UserError` if the file cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer
        return
    try:
        with open_private(Path(name)) as file:
            yield file
    except OSError as error:
        raise UserError(f"The backup cannot be written to {name}: {error}.") from error
