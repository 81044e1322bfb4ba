"""Redis storage for the directory's cells. A *cell* stores a part of the names that have one attribute-value pair.

Each command on a cell runs atomically, in one slot of the cluster. ``tests.support.memory_cells`` is the reference
implementation.

Most cells have few entries (*postings*), because most words are rare. One Redis key per cell would take several times
as much memory as these entries. Cells are therefore grouped into ``keys.CELL_BUCKETS`` buckets:

- A bucket has one *shared hash* for all its small cells.
- Each larger cell has its *own hash*, divided into 2 ^ b pages by the first b bits of the names. The shared hash
  states b.

A process keeps copies of the large cells that it has read last. Before it uses a copy, it asks Redis whether the cell
has changed, so it never uses an outdated one.

``scripts/cell_common.lua`` documents the layout. Reads are plain commands without scripts.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeGuard, TypeVar

import msgspec
import numpy as np
from cachetools import LRUCache

from service.discovery import matrix_cell
from service.discovery.cell_rounds import Rounds
from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, PairKey, head_address
from service.discovery.matrix_cell import CellAnswer, CellState, Command, Membership, transition
from service.discovery.postings import POSTING_BYTES, parse, sort_by_name
from service.store.client import keys
from service.store.client import redis_client as redis
from service.store.client.redis_client import RedisClient, RedisRepository

T = TypeVar("T")

_CACHED_CELLS = 20_000
_COPIED_BYTES = 8 << 20
"""Maximum size in bytes of all postings that a process keeps as copies of large cells."""
_PAIR_BYTES = 8
_NAME_BITS = 64
_READ_WITH_STATE_BITS = 2
"""A cell with b bits has 2 ^ b pages. If b is at most this number, the cell is always read with its postings. If only
the state of a larger cell is needed, its postings are not read."""
_MAX_TRIES = 8

_ScriptCall = tuple[str, Sequence[redis.Value]]
"""Name of a script, and the arguments after the id of the cell."""


def pair_key(pair: str) -> PairKey:
    """Return the digest of an attribute-value pair: 64 bits of BLAKE2b as 8 Latin-1 characters."""
    return blake2b(pair.encode(), digest_size=_PAIR_BYTES).digest().decode("latin-1")


class _CellCopy(msgspec.Struct, frozen=True):
    """A copy of a large cell's postings (records of names), sorted by name.

    ``count`` is the field ``n`` of the cell's hash, which changes whenever the postings change.
    """

    count: bytes
    postings: bytes


class MatrixCells(RedisRepository):
    """Runs commands on the cells of all directories, and stores the cells in Redis.

    A cell stores a part of the names (ids of channels or entries) that have one attribute-value pair. Calls made
    in the same iteration of the event loop share a round trip. Every method may raise
    :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, client: RedisClient) -> None:
        """Create an accessor for all matrix cells, which sends its commands through ``client``."""
        super().__init__(client)
        self._page_bits: LRUCache[CellAddress, int] = LRUCache(_CACHED_CELLS)
        """The number of bits in the page numbers of each cell that had its own hash when it was last read."""
        self._copies: LRUCache[CellAddress, _CellCopy] = LRUCache(_COPIED_BYTES, lambda copy: len(copy.postings))

    async def carry_out(self, commands: Sequence[Command]) -> list[CellAnswer]:
        """Run commands on cells and return the cells' answers, in the order of ``commands``.

        Each command is atomic. The order in which the commands run is undefined.
        """
        states = [command.place for command in commands if isinstance(command, matrix_cell.ReadState)]
        if len(states) == len(commands):
            return await self._read_states(states)
        scripts = [(command, _script_call_of(command)) for command in commands]
        called = [(command, each) for command, each in scripts if each is not None]
        replies, read, *others = await asyncio.gather(
            self._redis.call_many([_redis_command(command.place, *each) for command, each in called]),
            self._read_states(states),
            *(
                self._run_in_steps(command)
                for command, each in scripts
                if each is None and not isinstance(command, matrix_cell.ReadState)
            ),
        )
        of_scripts, of_reads, of_steps = map(_parse_answer, replies), iter(read), iter(others)
        return [
            next(of_reads)
            if isinstance(command, matrix_cell.ReadState)
            else next(of_steps)
            if each is None
            else next(of_scripts)
            for command, each in scripts
        ]

    async def run(self, protocol: Rounds[T]) -> T:
        """Run ``protocol``, a generator of commands to cells, and return the generator's result.

        The generator yields groups of commands, and is sent the cells' answers to each group.
        """
        try:
            commands = next(protocol)
            while True:
                commands = protocol.send(await self.carry_out(commands))
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    async def _run_in_steps(self, command: Command) -> CellAnswer:
        if isinstance(command, matrix_cell.ReadPostings):
            return await (self._read_all(command.place) if command.names is None else self._read_names(command))
        if isinstance(command, matrix_cell.FetchPostings):
            return await self._fetch(command)
        while True:
            (before,) = await self._read_states([command.place])
            after = transition(before.member, command)
            forgets = isinstance(command, matrix_cell.CloseCell) and after is not before.member and not command.keep
            steps = (_encode_membership(before.member), _encode_membership(after), int(forgets))
            changed, reply = await self._redis.call(*_redis_command(command.place, "cell_change_membership", steps))
            if changed:
                return _parse_answer(reply)

    async def _read_states(self, places: Sequence[CellAddress]) -> list[CellAnswer]:
        """Return the state of the cell at each address in ``places``, in order.

        If a cell has few postings (records of names), or if this process has an up-to-date copy of them, the cell's
        answer also contains the postings.
        """
        # A small cell is in the hash that the cells of its bucket share; a larger one has its own hash. The hash in
        # which a cell was found last is read first, and the other hash only if the cell is no longer there.
        bits = [self._page_bits.get(place) for place in places]
        todo = {
            number: _shared_field(place) if own is None else _own_state(place, own)
            for number, (place, own) in enumerate(zip(places, bits, strict=True))
        }
        answers, is_sure = dict[int, CellAnswer](), set[int]()
        while todo:
            replies = await self._redis.call_many(list(todo.values()))
            asked, todo = todo, {}
            for (number, command), found in zip(asked.items(), replies, strict=True):
                place = places[number]
                if command[0] == "HGET":  # of the shared hash
                    self._page_bits.pop(place, None)
                    if _has_further_fields(found):
                        todo[number] = _shared_fields(place, found[0])
                    elif _is_large(found):
                        is_sure.add(number)
                        self._page_bits[place] = found[0]
                        todo[number] = _own_state(place, found[0])
                    else:
                        answers[number] = _answer_without_hash(found)
                elif command[1] == keys.cell(place)[0]:
                    answer = _join_fields(found)
                    if answer is None:
                        todo[number] = _shared_field(place)
                    else:
                        answers[number] = answer
                elif number not in is_sure and not (found if isinstance(found, dict) else found[2]):
                    todo[number] = _shared_field(place)
                elif isinstance(found, dict):
                    answers[number] = self._answer_of_hash(place, found)
                else:
                    answers[number] = self._answer_of_state(place, found)
        return [answers[number] for number in range(len(places))]

    async def _read_all(self, place: CellAddress) -> CellAnswer:
        if place in self._copies:
            answer = self._answer_of_state(place, await self._redis.call(*_state_fields(place)))
            if answer.postings is not None:
                return answer
        for _ in range(_MAX_TRIES):
            found = await self._redis.call("HGETALL", keys.cell(place)[1])
            if found:
                return self._answer_of_hash(place, found)
            few, _ = await self._read_shared(place)
            if few is not None:
                return few
        return CellAnswer(None, done=False, postings=b"")

    async def _read_shared(self, place: CellAddress) -> tuple[CellAnswer | None, int]:
        """Read a cell from the hash that several small cells share.

        Return (answer, 0) if the cell is small. Return (None, b) if the cell is large. A large cell has a hash of its
        own, which is divided into 2 ^ b pages.
        """
        while True:
            field = await self._redis.call(*_shared_field(place))
            if _is_large(field):
                return None, field[0]
            if not _has_further_fields(field):
                return _answer_without_hash(field), 0
            answer = _join_fields(await self._redis.call(*_shared_fields(place, field[0])))
            if answer is not None:
                return answer, 0

    def _answer_of_hash(self, place: CellAddress, found: dict[bytes, bytes]) -> CellAnswer:
        """Convert the fields of a large cell's own Redis hash to the cell's answer."""
        member, matrix = found.pop(b"m", None), found.pop(b"x", None)
        count = found.pop(b"n", None)
        page = next(iter(found), None)
        if page is not None:
            self._page_bits[place] = int(page.partition(b".")[0])
        postings = b"".join(found.values())
        if count is not None and len(postings) <= _COPIED_BYTES // 4:
            postings = sort_by_name(postings)
            self._copies[place] = _CellCopy(count, postings)
        load = CellLoad(len(postings) // POSTING_BYTES)
        return CellAnswer(_decode_membership(member), _decode_matrix(matrix), load, done=True, postings=postings)

    def _answer_of_state(self, place: CellAddress, found: Sequence[bytes | None]) -> CellAnswer:
        """Convert the state of a large cell, which :func:`_state_fields` reads, to the cell's answer.

        If this process has a copy of the cell's postings that is up to date, the answer contains the postings.
        """
        member, matrix, count = found
        copy = self._copies.get(place)
        postings = copy.postings if copy is not None and copy.count == count else None
        load = CellLoad(int(count.partition(b" ")[0]) if count else 0)
        return CellAnswer(_decode_membership(member), _decode_matrix(matrix), load, postings=postings)

    async def _read_names(self, command: matrix_cell.ReadPostings) -> CellAnswer:
        """Read a cell's postings (records of names) for the names in ``command.names``.

        A large cell is read in pages, each with the postings of many names. The answer may therefore also contain
        postings of other names. If the cell is small, or if most of its pages are needed, the answer contains all its
        postings.
        """
        # If none of these pages exists, the number of pages may have changed since it was cached; it is then read
        # again.
        place, names = command.place, np.array(command.names, np.uint64)
        bits = self._page_bits.get(place)
        for _ in range(_MAX_TRIES):
            if bits is not None:
                pages = np.unique(names >> np.uint64(_NAME_BITS - bits)).tolist() if bits else [0]
                if 2 * len(pages) > 1 << bits:
                    break
                member, *parts = await self._redis.call(
                    "HMGET", keys.cell(place)[1], "m", *(f"{bits}.{page}" for page in pages)
                )
                found = [part for part in parts if part]
                if found:
                    return CellAnswer(_decode_membership(member), postings=b"".join(found))
            few, present_bits = await self._read_shared(place)
            if few is not None:
                return few
            if bits == present_bits:
                return CellAnswer(_decode_membership(member), postings=b"")
            bits = self._page_bits[place] = present_bits
        return await self._read_all(place)

    async def _fetch(self, command: matrix_cell.FetchPostings) -> CellAnswer:
        read = await self._read_all(command.place)
        postings = parse(read.postings or b"")
        names = postings["name"].astype(np.uint64)
        order = np.argsort(names)
        first = np.searchsorted(names[order], command.after, "right") if command.after >= 0 else 0
        wanted = postings[order[first : first + command.count]].tobytes()
        return msgspec.structs.replace(read, postings=wanted)


def _shared_field(place: CellAddress) -> redis.Command:
    return ("HGET", keys.cell(place)[0], keys.cell_id(place))


def _shared_fields(place: CellAddress, further: int) -> redis.Command:
    ident = keys.cell_id(place)
    return ("HMGET", keys.cell(place)[0], ident, *(ident + bytes((number,)) for number in range(1, further + 1)))


def _own_state(place: CellAddress, bits: int) -> redis.Command:
    """Return the command that reads the state of a large cell, which has its own Redis hash.

    The hash has 2 ^ ``bits`` pages. If there are few pages, the command also reads the cell's postings (records
    of names).
    """
    own = keys.cell(place)[1]
    return ("HGETALL", own) if bits <= _READ_WITH_STATE_BITS else _state_fields(place)


def _state_fields(place: CellAddress) -> redis.Command:
    return ("HMGET", keys.cell(place)[1], "m", "x", "n")


def _redis_command(place: CellAddress, name: str, arguments: Sequence[redis.Value]) -> redis.Command:
    return redis.script_command(name, keys.cell(place), keys.cell_id(place), *arguments)


def _script_call_of(command: Command) -> _ScriptCall | None:
    """Return (script, arguments) for the script that carries out a command on a cell.

    Return None if the command needs no script, or takes several steps.
    """
    match command:
        case matrix_cell.PutPostings(place=place, postings=postings, assumed_size=assumed):
            size = (assumed.partitions, assumed.epoch) if assumed else (0, 0)
            return "cell_put_postings", (int(place == head_address(place.pair)), *size, postings)
        case matrix_cell.ExpireNames():
            return "cell_expire_postings", ()
        case matrix_cell.DropPostings(postings=postings):
            return "cell_delete_postings", (postings,)
        case matrix_cell.UpdateMatrix(before=before, after=after):
            held = b"" if before is None else msgspec.msgpack.encode(before)
            membership = _encode_membership(Membership(command.state, after.size))
            return "cell_update_matrix", (held, msgspec.msgpack.encode(after), membership)
    return None


def _is_large(field: bytes | None) -> TypeGuard[bytes]:
    """Return whether a cell of the directory is so large that it has its own Redis hash.

    ``field`` is the cell's field in the shared hash for small cells; None if the field does not exist.
    """
    return field is not None and len(field) % POSTING_BYTES > 1


def _has_further_fields(field: bytes | None) -> TypeGuard[bytes]:
    return field is not None and len(field) % POSTING_BYTES == 1


def _join_fields(fields: Sequence[bytes | None]) -> CellAnswer | None:
    """Combine the fields that store one small cell in the shared hash, and return the cell's answer.

    ``fields`` are the contents of these fields, in order. The first field states how many further fields the cell
    has. If ``fields`` contains a different number, the cell has changed in the meantime. Then return None; the
    caller must read the cell again.
    """
    first, *further = fields
    if not _has_further_fields(first) or first[0] != len(further):
        return None
    return _answer_without_hash(first[1:] + b"".join(each for each in further if each))


def _answer_without_hash(field: bytes | None) -> CellAnswer:
    """Create the answer of a small cell, which has no Redis hash of its own.

    ``field`` contains the cell's postings (records of names); None if it has none.
    """
    postings = field or b""
    return CellAnswer(None, None, CellLoad(len(postings) // POSTING_BYTES), done=False, postings=postings)


def _encode_membership(member: Membership | None) -> str:
    if member is None:
        return ""
    size = member.size
    return f"{member.state} {size.epoch} {size.partitions} {','.join(map(str, size.rows))}"


@lru_cache(1024)
def _decode_membership(text: bytes | None) -> Membership | None:
    if not text:
        return None
    state, epoch, partitions, rows = text.decode().split()
    return Membership(CellState(state), MatrixSize(int(epoch), int(partitions), tuple(map(int, rows.split(",")))))


def _decode_matrix(packed: bytes | None) -> Matrix | None:
    return msgspec.msgpack.decode(packed, type=Matrix) if packed else None


def _parse_answer(reply: Sequence[Any]) -> CellAnswer:
    member, matrix, names, done = reply
    return CellAnswer(_decode_membership(member), _decode_matrix(matrix), CellLoad(names), bool(done))
