"""Redis storage for the channel index: server tables, records, and moves of key groups (CLASH).

A *keyspace* represents a server in the CLASH paper. It has a *server table*, which lists its key groups, and it stores
the records in these groups. A *leaf* is a key group that is not split. ``service.clash`` makes the decisions; this
module stores the results.

To change a server table, a process takes these steps:

1. It reads the table.
2. It computes the new table with a pure function.
3. It writes the new table if the stored one has not changed since.

One common case needs only a single script: a request to accept a key (``AcceptObject``), if the leaf that contains the
key is not moving.

Records are stored in pages, sorted by position. A record is 28 bytes long, with big-endian integers. Its first 24 bytes
are its position:

====  =====================================================================================
size  content
====  =====================================================================================
4     identifier key, unsigned
8     first bytes of the channel id, which with 24 bits of the key identify the channel
12    user id
4     2 · seq, plus 1 for a tombstone, unsigned; the record with the greater value is newer
====  =====================================================================================

- ``seq`` is the sequence number of the user's change.
- A *tombstone* is the record of a subscription that has ended.
- ``Record.id`` consists of the 20 bytes for channel and user, as Latin-1 characters, so that ids sort like these bytes.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from struct import Struct
from typing import Any

import msgspec

from service.clash import move_steps
from service.clash.group_search import Probe
from service.clash.key_groups import KeyGroup, Keyspace, Keyspaces, check_key
from service.clash.move_steps import Finish, MergeGroup, MoveStarted, Step, next_step
from service.clash.prefix_query import Page, Position, ReadDonor, ReadLeaf, Record
from service.clash.server_table import Move, ServerTable, empty_table, from_fields, root_table, to_fields
from service.clash.table_transitions import (
    Accepted,
    AcceptObjectReply,
    accept_object,
    apply_proof,
    is_giving,
    is_taking,
    mark_emptied,
)
from service.errors import BadKey
from service.model import ChannelId, UserId
from service.store.client import keys
from service.store.client.node_connections import Value
from service.store.client.redis_client import RedisClient, script_command

_RECORD = Struct(">I20sI")
_CHANNEL_BYTES = 8
_ID_BYTES = 20
_MOST_KEY = (1 << 32) - 1
_MOST_SEQ = (1 << 31) - 1

RECORD_BYTES = _RECORD.size


def channel_prefix(cid: ChannelId) -> bytes:
    """Return the first 8 bytes of a channel id, which identify the channel in the records of its subscriptions."""
    # They identify it among subscriptions with the same key.
    return bytes.fromhex(cid[: 2 * _CHANNEL_BYTES])


def record_id(cid: ChannelId, uid: UserId) -> str:
    """Return the id of a subscription's record, which consists of the channel's prefix and the user id."""
    return (channel_prefix(cid) + urlsafe_b64decode(uid)).decode("latin-1")


def user_ids(records: Sequence[Record]) -> list[UserId]:
    """Return the user id in each record, in order."""
    # 12 bytes are exactly 16 characters of base64, so all ids can be encoded in one call.
    together = "".join([record.id[_CHANNEL_BYTES:] for record in records]).encode("latin-1")
    text = urlsafe_b64encode(together).decode()
    return [text[at : at + 16] for at in range(0, len(text), 16)]


def pack_record(record: Record) -> bytes:
    """Encode a record as 28 bytes. Raises :class:`BadKey` if its key or seq is out of range."""
    if not 0 <= record.seq <= _MOST_SEQ or not 0 <= record.key <= _MOST_KEY:
        raise BadKey(f"No page can hold {record}: keys have up to 32 bits, and seqs 31.")
    return _RECORD.pack(record.key, _id_bytes(record.id), record.seq << 1 | (not record.present))


def unpack_page(page: bytes) -> tuple[Record, ...]:
    """Decode the records in a page."""
    return tuple(
        [Record(key, name.decode("latin-1"), word >> 1, not word & 1) for key, name, word in _RECORD.iter_unpack(page)]
    )


def position_bytes(record: Record) -> bytes:
    """Return the position of a record as 24 bytes: its key and its id. Records are sorted by these bytes."""
    return pack_record(record)[:-4]


def range_bounds(group: KeyGroup, after: Position | None = None) -> tuple[bytes, bytes]:
    """Return the lowest and the highest position that a record in a key group can have, as 24 bytes each.

    If ``after`` is given, the lowest position is the one that follows ``after``.
    """
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


Fields = Mapping[str, str]
"""Fields of a server table as read from Redis; empty before the first write."""


def table_changes(fields: Fields, table: ServerTable) -> bytes:
    """Return the JSON that tells a script how to replace a server table with ``table``.

    The JSON contains the fields that the script must find unchanged, the fields to set, and the fields to delete.
    ``fields`` are the stored table's fields, as they were read.
    """
    after = to_fields(table)
    changed = {name: text for name, text in after.items() if fields.get(name) != text}
    return msgspec.json.encode({"read": fields, "set": changed, "drop": [*(fields.keys() - after.keys())]})


def decode_fields(reply: Any) -> Fields:
    """Return the fields of a Redis hash. ``reply`` is Redis's reply to HGETALL: a dictionary or a flat list."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): text.decode() for name, text in pairs}


RECORDS_PER_STEP = 500
"""Maximum number of records in one step of a move. A step takes Redis a few milliseconds."""
_TOMBSTONES_PER_STEP = 500
_CHANNELS_PER_COUNT = 500
_EMPTY_PAGE = Page((), complete=True)


class KeyspaceStore:
    """Stores the subscribers of channels, divided into keyspaces (called servers in the CLASH paper).

    A keyspace has a server table, which lists its key groups, and records of the subscriptions in these groups.
    Each change to a server table or its records is atomic, and stays in one cluster slot. Calls made in the same
    iteration of the event loop share a round trip. Every method may raise these errors:

    - :class:`service.errors.StoreUnavailable`
    - :class:`service.errors.UnknownKeyspace` if a keyspace does not exist; nothing is changed.
    - :class:`service.errors.BadKey` if a key or record has the wrong size; nothing is changed.
    """

    def __init__(self, redis: RedisClient, keyspaces: Keyspaces, bits: int) -> None:
        """Create the repository for these keyspaces, with keys of ``bits`` bits (at most 32).

        ``keyspaces`` and ``bits`` must be the same in all processes.
        """
        self._redis = redis
        self.map = keyspaces
        self.bits = bits
        self._root = keyspaces.keyspace_of(KeyGroup(0, 0, bits))

    async def carry_out(self, step: move_steps.Step) -> move_steps.Outcome:
        """Run one step of moving a key group atomically, and return the step's outcome.

        Raises :class:`service.errors.MoveRefused` if the current state of the server table does not permit the step.
        """
        keyspace = move_steps.keyspace_of(step)
        outcome: move_steps.Outcome | None = None
        while outcome is None:  # the table has changed since it was read
            ((fields, table),) = await self._read_tables([keyspace])
            match step:
                case move_steps.Fetch():
                    outcome = await self._fetch(step, fields, table)
                case move_steps.Put():
                    outcome = await self._put(step, fields, table)
                case _:
                    outcome = await self._change(step, fields, table)
        return outcome

    async def tables(self, keyspaces: Sequence[Keyspace]) -> list[ServerTable]:
        """Return the server table of each keyspace, in order."""
        return [table for _, table in await self._read_tables(keyspaces)]

    async def write(self, probe: Probe, record: Record) -> AcceptObjectReply:
        """Write ``record`` to a keyspace if the keyspace accepts the key in ``probe``; return the keyspace's answer.

        - ``probe``: a request to a keyspace to accept a key (CLASH's AcceptObject).
        - ``record``: a subscription, or a tombstone, which records that a subscription has ended.
        """
        check_key(record.key, self.bits)
        return (await self._accept(probe, "write", pack_record(record)))[0]

    async def count(self, probe: Probe, prefix: bytes) -> tuple[AcceptObjectReply, int]:
        """Return a keyspace's answer to ``probe``, and how many subscriptions to one channel the keyspace stores.

        - ``probe``: a request to a keyspace to accept a key (CLASH's AcceptObject).
        - ``prefix``: the :func:`channel_prefix` of the channel.
        """
        found, (number,) = await self._accept(probe, "count", prefix)
        return found, number

    async def count_at_leaves(self, channels: Mapping[KeyGroup, Sequence[bytes]]) -> dict[bytes, int]:
        """Count the subscriptions to several channels, using one round trip and one command per leaf.

        A leaf is a key group that is not split. ``channels`` maps each leaf that probably contains the subscriptions of
        channels to the :func:`channel_prefix` of each of these channels.

        The result maps the prefix of each channel to the number of its subscriptions. The channels of a leaf are left
        out if the keyspace does not have this leaf, or if the leaf is moving. The caller must then call :meth:`count`.
        """
        asked = [
            (leaf, prefixes[first : first + _CHANNELS_PER_COUNT])
            for leaf, prefixes in channels.items()
            for first in range(0, len(prefixes), _CHANNELS_PER_COUNT)
        ]
        commands = [
            script_command(
                "keyspace_count",
                keys.keyspace(self.map.keyspace_of(leaf)),
                f"{leaf.key:0{self.bits}b}",
                leaf.depth,
                *prefixes,
            )
            for leaf, prefixes in asked
        ]
        counts: dict[bytes, int] = {}
        for (leaf, prefixes), (label, *found) in zip(asked, await self._redis.call_many(commands), strict=True):
            if label == leaf.label.encode():
                counts |= zip(prefixes, found, strict=True)
        return counts

    async def count_in(self, keyspace: Keyspace, prefix: bytes) -> int:
        """Return how many subscriptions to the channel with this :func:`channel_prefix` a keyspace stores."""
        return int(await self._redis.call("HGET", keys.keyspace(keyspace)[3], prefix) or 0)

    async def count_all(self) -> Counter[bytes]:
        """Return how many subscriptions each channel has, keyed by the channel's :func:`channel_prefix`.

        While key groups are moving, a count may be too high, but is never too low.
        """
        found = await self._redis.call_many([("HGETALL", keys.keyspace(number)[3]) for number in range(self.map.count)])
        counts: Counter[bytes] = Counter()
        for held in found:
            for prefix, count in held.items():
                counts[prefix] += int(count)
        return counts

    async def read_leaf(self, request: ReadLeaf) -> tuple[AcceptObjectReply, Page]:
        """Return a keyspace's answer to ``request``, and a page of records from a leaf (a key group that is not split).

        ``request`` contains a probe: a request to a keyspace to accept a key (CLASH's AcceptObject). The leaf is the
        one that contains this key. The page is empty if the keyspace does not accept the key.
        """
        low, high = range_bounds(request.prefix, request.after)
        found, pages = await self._accept(request.probe, "read", low, high, request.count)
        return found, _parse_page(pages, request.count) if isinstance(found, Accepted) else _EMPTY_PAGE

    async def read_donor(self, request: ReadDonor) -> Page:
        """Return a page of the records of a moving key group that have not been moved yet.

        The records are read from the donor: the keyspace that the group is leaving. The page is empty if the donor is
        not currently giving the group away.
        """
        donor = request.move.donor
        low, high = range_bounds(request.group, request.after)
        fields, *pages = await self._run(donor, "read_donor", low, high, request.count)
        table = self._table(donor, decode_fields(fields))
        return _parse_page(pages, request.count) if is_giving(table, request.move) else _EMPTY_PAGE

    async def sizes(self, keyspace: Keyspace, groups: Sequence[KeyGroup]) -> list[int]:
        """Return how many subscriptions a keyspace stores in each of these key groups, in order."""
        found: list[int] = await self._run(
            keyspace, "sizes", *(bound for group in groups for bound in range_bounds(group))
        )
        return found

    async def record_deliveries(self, keyspace: Keyspace, group: KeyGroup, deliveries: int) -> None:
        """Add ``deliveries`` to the count of deliveries to subscribers in a key group.

        The count is used only to balance load, and may be lost.
        """
        await self._redis.call("HINCRBY", keys.keyspace_deliveries(keyspace), group.label, deliveries)

    async def take_deliveries(self, keyspace: Keyspace) -> Mapping[KeyGroup, int]:
        """Return the number of deliveries per key group since the last call, and reset these counts to 0."""
        counters = keys.keyspace_deliveries(keyspace)
        found, _ = await self._redis.call_many([("HGETALL", counters), ("DEL", counters)])
        return {KeyGroup.from_label(label.decode(), self.bits): int(number) for label, number in found.items()}

    async def _read_tables(self, keyspaces: Sequence[Keyspace]) -> list[tuple[Fields, ServerTable]]:
        """Return a pair (fields of the Redis hash, server table that they encode) for each keyspace, in order."""
        for keyspace in keyspaces:
            self.map.check(keyspace)
        replies = await self._redis.call_many([("HGETALL", keys.keyspace(keyspace)[0]) for keyspace in keyspaces])
        found = zip(keyspaces, map(decode_fields, replies), strict=True)
        return [(fields, self._table(keyspace, fields)) for keyspace, fields in found]

    def _table(self, keyspace: Keyspace, fields: Fields) -> ServerTable:
        """Decode a keyspace's server table from the fields of its Redis hash.

        ``fields`` is empty before the first write. Until then, the keyspace ``_root`` owns the group of all keys, and
        the tables of all other keyspaces are empty.
        """
        if fields:
            return from_fields(keyspace, fields, self.map, self.bits)
        return root_table(keyspace, self.bits) if keyspace == self._root else empty_table(keyspace, self.bits)

    async def _write_table(self, fields: Fields, table: ServerTable) -> bool:
        """Replace a server table with ``table``; return False if it has changed since ``fields`` were read."""
        (done,) = await self._run(table.keyspace, "change", table_changes(fields, table))
        return bool(done)

    async def _run(self, keyspace: Keyspace, operation: str, *arguments: Value) -> Any:
        """Run ``scripts/keyspace_OPERATION.lua`` on a keyspace and return its reply."""
        self.map.check(keyspace)
        return await self._redis.run_script(f"keyspace_{operation}", keys.keyspace(keyspace), *arguments)

    async def _accept(self, probe: Probe, operation: str, *arguments: Value) -> tuple[AcceptObjectReply, list[Any]]:
        """Run ``scripts/keyspace_OPERATION.lua`` if the keyspace accepts the key in ``probe`` (CLASH's AcceptObject).

        Return the keyspace's answer, and the rest of the script's reply.
        """
        check_key(probe.key, self.bits)
        if probe.proof is not None:
            await self._apply_proof(probe.keyspace, probe.proof)
        while True:
            key = f"{probe.key:0{self.bits}b}"
            answer, *rest = await self._run(probe.keyspace, operation, key, probe.depth, *arguments)
            if isinstance(answer, bytes):
                return Accepted(KeyGroup.from_label(answer.decode(), self.bits)), rest
            fields = decode_fields(answer)
            table = self._table(probe.keyspace, fields)
            if fields or not table.entries:
                return accept_object(table, probe.key), rest
            # The first query of all: write the root's table.
            await self._write_table(fields, table)

    async def _apply_proof(self, keyspace: Keyspace, proof: Move) -> None:
        """Record in a keyspace's server table that the keyspace has received a key group, if this is not recorded yet.

        ``proof`` is the move in which another keyspace gave the group away.
        """
        while True:
            ((fields, before),) = await self._read_tables([keyspace])
            after = apply_proof(before, proof)
            if after is before or await self._write_table(fields, after):
                return

    async def _change(self, step: move_steps.Step, fields: Fields, before: ServerTable) -> move_steps.Outcome | None:
        after = move_steps.apply(before, step, self.map)
        leaf = move_steps.filled_leaf(step, after)
        if leaf is not None:
            # Also if the move was complete before: the process may have failed before all tombstones were dropped.
            if not await self._drop_tombstones(fields, after, leaf):
                return None
        elif after is not before and not await self._write_table(fields, after):
            return None
        match step:
            case move_steps.SplitGroup() | move_steps.MergeGroup():
                return move_steps.MoveStarted(after.move)
            case move_steps.GiveKeyGroup():
                return move_steps.GiveResult(is_giving(after, step.move))
        return move_steps.StepDone()

    async def _drop_tombstones(self, fields: Fields, after: ServerTable, leaf: KeyGroup) -> bool:
        """Replace a server table with ``after`` and delete tombstones in a leaf, in one atomic step.

        A leaf is a key group that is not split. A tombstone is the record of a subscription that has ended. ``fields``
        are the table's fields as they were read.

        Return False if the table has changed since it was read, or if there may be more tombstones than one call
        deletes (``_TOMBSTONES_PER_STEP``). The caller must then try again.
        """
        changed = table_changes(fields, after)
        done, *dropped = await self._run(
            after.keyspace, "complete_leaf", changed, *range_bounds(leaf), _TOMBSTONES_PER_STEP
        )
        return bool(done) and dropped[0] < _TOMBSTONES_PER_STEP

    async def _fetch(
        self, step: move_steps.Fetch, fields: Fields, table: ServerTable
    ) -> move_steps.FetchedRecords | None:
        if not is_giving(table, step.move):
            return move_steps.FetchedRecords(())
        dropped = b"".join(position_bytes(record) for record in step.transferred)
        changed = table_changes(fields, mark_emptied(table, step.move))
        done, *pages = await self._run(
            table.keyspace, "fetch", changed, dropped, *range_bounds(step.move.group), RECORDS_PER_STEP
        )
        return move_steps.FetchedRecords(_parse_page(pages, RECORDS_PER_STEP).records) if done else None

    async def _put(self, step: move_steps.Put, fields: Fields, table: ServerTable) -> move_steps.PutResult | None:
        if not is_taking(table, step.move):
            return move_steps.PutResult(taking=False)
        records = b"".join(pack_record(record) for record in step.records)
        (done,) = await self._run(table.keyspace, "put", table_changes(fields, table), records)
        return move_steps.PutResult(taking=True) if done else None


def _parse_page(reply: Sequence[Any], count: int) -> Page:
    """Return a page with up to ``count`` records from a script's reply.

    The page is marked as complete if no further records follow.
    """
    more, *pages = reply
    found = b"".join(pages)
    return Page(unpack_page(found[: count * RECORD_BYTES]), complete=not more and len(found) <= count * RECORD_BYTES)


async def run_move(keyspaces: KeyspaceStore, first: Step) -> AsyncIterator[tuple[Step, str | None]]:
    """Run all steps of a move, beginning with ``first``. A move splits or merges a key group.

    Each iteration runs one step and yields a tuple (step, text). The text is "split" or "merge" if the step has
    completed the move; otherwise it is None.

    To continue an interrupted move, pass the step from :func:`service.clash.move_steps.resume_step`. Raises
    :class:`service.errors.MoveRefused` if a server table does not permit a step, and the errors of
    :class:`KeyspaceStore`.
    """
    step: Step | None = first
    while step is not None:
        outcome = await keyspaces.carry_out(step)
        match step:
            case Finish(move=move):
                yield step, move.kind.value
            case MergeGroup() if outcome == MoveStarted(None):
                yield step, "merge"
            case _:
                yield step, None
        step = next_step(step, outcome)
