"""Cells of the directory's matrices on Redis. A command runs atomically, in one slot of the cluster.

The directory finds names by attribute-value pairs (AV-pairs). Each AV-pair has a matrix of cells, which share its load.
``tests.support.cells`` is the reference implementation of a cell.

In a cell, an AV-pair is represented by a digest of 8 bytes (:func:`pair_key`). Queries match names by bit-sliced
signatures in an index, whose layout is documented in ``scripts/cell_common.lua``. Matching names are then compared with
their records, so there are no false matches.

A record is packed big-endian:

====  =================================================================
size  content
====  =================================================================
3     place of the name in the index; 0 without an index
6     version
6     expiry (Unix ms)
8·n   digests of the name's AV-pairs, sorted; none if it is withdrawn
====  =================================================================

Deviation from the paper: rates (registrations and queries per second) are measured in consecutive windows of at least a
second, not in sliding windows. A cell therefore stores four numbers per rate. Until the first window has ended, the
rate counts as 0, so that a single batch of registrations is not taken for a high rate.
"""

import asyncio
import struct
import time
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from service.discovery import cell
from service.discovery.cell import CellAnswer, CellState, Command, Match, Membership, NameRecord, transition
from service.discovery.cell_rounds import Rounds
from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, PairKey, rate_per_s
from service.store.client import connection as redis
from service.store.client import keys
from service.store.client.connection import BatchedRepository

T = TypeVar("T")

PAIR_BYTES = 8

_CACHED_PAIRS = 200_000
_CACHED_RECORDS = 4096
_SLOT_BYTES = 3
_HEAD = struct.Struct(">HIHI")
_LONG = 1 << 32
_NO_SLOT = b"\0" * _SLOT_BYTES

_ScriptCall = tuple[str, CellAddress, Sequence[redis.Value]]
"""Name of a script ("" to only read the cell), address of the cell, and arguments."""


@lru_cache(_CACHED_PAIRS)
def pair_key(pair: str) -> PairKey:
    """Return the digest that represents an AV-pair in matrices: 64 bits of BLAKE2b as 8 Latin-1 characters."""
    return blake2b(pair.encode(), digest_size=PAIR_BYTES).digest().decode("latin-1")


_MARKS = ("m", "x", "n", "w")


class ContentMark(msgspec.Struct, frozen=True):
    """What a cell stores about its content, as bytes; None where the cell stores nothing.

    These are its membership in a matrix, the record of the matrix, the number of names, and the window in which it
    counts registrations and withdrawals.
    """

    member: bytes | None
    matrix: bytes | None
    names: bytes | None
    registrations: bytes | None


class MatrixCells(BatchedRepository):
    """All matrix cells. Calls in one iteration of the event loop share a round trip.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    async def carry_out(self, commands: Sequence[Command]) -> list[CellAnswer]:
        """Run commands on cells and return their answers, in the order of ``commands``.

        Each command is atomic. The order in which they run is undefined.
        """
        asked = [_script_call_of(command) for command in commands]
        replies, *others = await asyncio.gather(
            self._run_scripts([each for each in asked if each is not None]),
            *(self._by_steps(command) for command, each in zip(commands, asked, strict=True) if each is None),
        )
        said, stepped = iter(replies), iter(others)
        return [
            next(stepped) if each is None else _parse_reply(command, next(said))
            for command, each in zip(commands, asked, strict=True)
        ]

    async def run(self, protocol: Rounds[T]) -> T:
        """Run a protocol, whose rounds are carried out one after the other, and return its result."""
        try:
            commands = next(protocol)
            while True:
                commands = protocol.send(await self.carry_out(commands))
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    async def content_marks(self, places: Sequence[CellAddress]) -> list[ContentMark]:
        """Return the mark of each cell's content.

        A cell whose mark has not changed has the same names and records, except for records that have expired, and
        for copies from other cells that replaced older records.
        """
        return [
            ContentMark(*reply)
            for reply in await self._redis.call_many([("HMGET", keys.cell(place)[0], *_MARKS) for place in places])
        ]

    async def _run_scripts(self, asked: Sequence[_ScriptCall]) -> list[Any]:
        return await self._redis.call_many([_redis_command(*each) for each in asked])

    async def _by_steps(self, command: Command) -> CellAnswer:
        if isinstance(command, cell.FetchRecords):
            return await self._fetch(command)
        if isinstance(command, cell.ExpireNames):
            return await self._sweep(command)
        while True:
            (before,) = await self.carry_out([cell.ReadState(command.place)])
            after = transition(before.member, command)
            forgets = isinstance(command, cell.CloseCell) and after is not before.member and not command.keep
            steps = (_member(before.member), _member(after), int(forgets))
            ((changed, said),) = await self._run_scripts([("cell_change_membership", command.place, steps)])
            if changed:
                return _answer(said)

    async def _sweep(self, command: cell.ExpireNames) -> CellAnswer:
        cursor: redis.Value = b"0"
        while True:
            ((cursor, said),) = await self._run_scripts([("cell_expire_records", command.place, (cursor,))])
            if cursor == b"0":
                return _answer(said)

    async def _fetch(self, command: cell.FetchRecords) -> CellAnswer:
        """Return a page of a cell's records, sorted by name. Records that are added during the call may be missing."""
        names = keys.cell(command.place)[1]
        found = sorted(name.decode() for name in await self._redis.call("HKEYS", names))
        wanted = [name for name in found if name > command.after][: command.count]
        reading: list[redis.Command] = [_look(command.place), *([("HMGET", names, *wanted)] if wanted else [])]
        said, *held = await self._redis.call_many(reading)
        answer, now_ms = _parse_state(said), time.time() * 1000
        packed = zip(wanted, held[0] if held else (), strict=True)
        records = (_record(name, record) for name, record in packed if record)
        return msgspec.structs.replace(answer, records=tuple(each for each in records if each.expires_ms > now_ms))


def _look(place: CellAddress) -> redis.Command:
    return ("HMGET", keys.cell(place)[0], "m", "x", "n", "w", "q")


def _redis_command(name: str, place: CellAddress, arguments: Sequence[redis.Value]) -> redis.Command:
    if not name:
        return _look(place)
    return redis.script_command(name, keys.cell(place), place.pair.encode("latin-1"), *arguments)


def _script_call_of(command: Command) -> _ScriptCall | None:
    """Return the script call that carries out a command; None if the command takes several calls."""
    named: tuple[str, Sequence[redis.Value]]
    match command:
        case cell.ReadState():
            named = "", ()
        case cell.PutRecords(records=records):
            believes = command.assumed_size or MatrixSize(0, 0, ())
            how = int(command.replace_only), believes.partitions, believes.epoch
            named = "cell_put_records", (*how, *_given(records))
        case cell.FindNames(pairs=pairs):
            named = "cell_find_names", (command.limit, *(pair.encode("latin-1") for pair in pairs))
        case cell.DropRecords(records=records):
            named = "cell_delete_records", _given(records)
        case cell.UpdateMatrix(before=before, after=after):
            held = b"" if before is None else msgspec.msgpack.encode(before)
            standing = _member(Membership(command.state, after.size))
            named = "cell_update_matrix", (held, msgspec.msgpack.encode(after), standing)
        case _:
            return None
    return named[0], command.place, named[1]


def _given(records: Sequence[NameRecord]) -> list[redis.Value]:
    return [part for record in records for part in (record.name, _pack_record(record))]


def _parse_reply(command: Command, said: Sequence[Any]) -> CellAnswer:
    return _parse_state(said) if isinstance(command, cell.ReadState) else _answer(said)


@lru_cache(_CACHED_RECORDS)
def _pack_record(record: NameRecord) -> bytes:
    """Return a record in the format of cells, with place 0 because it has no place in an index yet.

    The result is cached, because the same record is stored in the matrices of all its pairs.
    """
    version, expires_ms = record.version, record.expires_ms
    head = _HEAD.pack(*divmod(version, _LONG), *divmod(expires_ms, _LONG))
    return _NO_SLOT + head + "".join(sorted(record.pairs)).encode("latin-1")


def _record(name: str, packed: bytes) -> NameRecord:
    version, expires_ms = _head(packed)
    pairs = packed[_SLOT_BYTES + _HEAD.size :].decode("latin-1")
    starts = range(0, len(pairs), PAIR_BYTES)
    return NameRecord(name, version, frozenset(pairs[start : start + PAIR_BYTES] for start in starts), expires_ms)


def _head(packed: bytes) -> tuple[int, int]:
    version_high, version_low, expires_high, expires_low = _HEAD.unpack_from(packed, _SLOT_BYTES)
    return version_high * _LONG + version_low, expires_high * _LONG + expires_low


def _member(member: Membership | None) -> str:
    if member is None:
        return ""
    size = member.size
    return f"{member.state} {size.epoch} {size.partitions} {','.join(map(str, size.rows))}"


@lru_cache(1024)
def _member_of(text: bytes | None) -> Membership | None:
    if not text:
        return None
    standing, epoch, partitions, rows = text.decode().split()
    return Membership(CellState(standing), MatrixSize(int(epoch), int(partitions), tuple(map(int, rows.split(",")))))


def _parse_state(said: Sequence[Any]) -> CellAnswer:
    """Parse the reply to a command that only reads a cell.

    Rates are computed with this process's clock, which is accurate enough to choose the cell with less load.
    """
    member, matrix, names, *windows = said
    now_ms = int(time.time() * 1000)
    return _answer((member, matrix, int(names or 0), *(window or b"" for window in windows), now_ms, bool(member)))


def _answer(said: Sequence[Any]) -> CellAnswer:
    member, matrix, names, registrations, queries, time_ms, done, *found = said
    at_ms = int(time_ms)
    load = CellLoad(names, _rate(registrations, at_ms), _rate(queries, at_ms))
    pairs = iter(found[0] if found else ())
    matches = tuple(Match(name.decode(), int(version)) for name, version in zip(pairs, pairs, strict=True))
    record = msgspec.msgpack.decode(matrix, type=Matrix) if matrix else None
    return CellAnswer(_member_of(member), record, load, bool(done), matches)


def _rate(window: bytes, at_ms: int) -> float:
    """Return the events per second since the last complete window began, at the time ``at_ms`` (Unix ms).

    ``window`` is the text in which a cell stores the counts of its windows.
    """
    if window[-4:] in (b"", b" 0 0"):
        return 0.0
    count, _, last, before_ms = map(int, window.split())
    return rate_per_s(last + count, (at_ms - before_ms) / 1000)
