"""The ``ServerTable`` of a keyspace: its key groups, and the move that it carries out (CLASH §V.B, Figure 3).

A group is in one of these states:

    ACTIVE     a leaf, complete: this keyspace accepts its keys
    ARRIVING   a leaf that was split off in its parent's keyspace: some of its records are still there
    RETURNING  a leaf that was merged: some records of its right half are still in that half's keyspace
    SPLIT      not a leaf: its left child is here, its right child in ``right_child``
    LEAVING    given back to its parent's keyspace: the remaining records are waiting to be fetched

All leaves are in the keyspace that their virtual key maps to.

A keyspace carries out one *move* at a time, which is the split or merge of one of its own groups. The right child of
this group is in another keyspace, the *child* of the move. A keyspace can be the child in moves of several other
keyspaces at the same time. A keyspace numbers its moves. Each child remembers the highest number that it has seen from
each keyspace, so that it recognises late and repeated steps.

A table is stored as the fields of a Redis hash, readable by people and scripts, one field per entry::

    bits           N
    moves          number of moves that this keyspace has begun
    move           the current one: NUMBER KIND CHILD GROUP STAGE
    seen:7         the highest number of keyspace 7's moves that was seen here
    011*           a group: STATE parent=… right=…; absent parts are left out
"""

from collections.abc import Mapping
from enum import StrEnum
from re import fullmatch

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, Keyspaces
from service.errors import BadKey


class GroupState(StrEnum):
    """The state of a key group in a table.

    ``ACTIVE`` is a leaf with all its records. ``ARRIVING`` and ``RETURNING`` are leaves that still receive records,
    after a split and in a merge. ``SPLIT`` is no leaf. ``LEAVING`` is a former leaf that was returned for a merge.
    """

    ACTIVE = "active"
    ARRIVING = "arriving"
    RETURNING = "returning"
    SPLIT = "split"
    LEAVING = "leaving"


LEAF_STATES = (GroupState.ACTIVE, GroupState.ARRIVING, GroupState.RETURNING)
"""States of leaves."""


class TableEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One group of a table.

    ``parent`` is the keyspace of the group's parent; None for the root. ``right_child`` is the keyspace of the group's
    right child if the group is split, otherwise None.
    """

    state: GroupState
    parent: Keyspace | None = None
    right_child: Keyspace | None = None


class MoveKind(StrEnum):
    """The direction in which the right child moves.

    SPLIT moves it to the keyspace that it maps to, and MERGE back to its parent's keyspace.
    """

    SPLIT = "split"
    MERGE = "merge"


class MoveStage(StrEnum):
    """The progress of the move that a keyspace carries out.

    A split is GIVING while records of the right child remain in the parent's keyspace, then EMPTIED. A merge is PLANNED
    until the right child's keyspace returns the right child, then TAKING while its records arrive.
    """

    GIVING = "giving"
    EMPTIED = "emptied"
    PLANNED = "planned"
    TAKING = "taking"


class Move(msgspec.Struct, frozen=True):
    """The move of a right child from one keyspace to another.

    ``keyspace`` is the keyspace of the parent group, which carries out the move. ``number`` is the number of this move
    among the moves of that keyspace. ``child`` is the other keyspace, and ``group`` is the right child. A client
    presents the move as a proof to the keyspace that receives the right child.
    """

    number: int
    kind: MoveKind
    keyspace: Keyspace
    child: Keyspace
    group: KeyGroup

    @property
    def donor(self) -> Keyspace:
        """The keyspace that the records leave."""
        return self.keyspace if self.kind is MoveKind.SPLIT else self.child

    @property
    def taker(self) -> Keyspace:
        """The keyspace that receives the records."""
        return self.child if self.kind is MoveKind.SPLIT else self.keyspace

    @property
    def leaf(self) -> KeyGroup:
        """The leaf group that receives the records: the right child in a split, and its parent in a merge."""
        return self.group if self.kind is MoveKind.SPLIT else self.group.parent


class ServerTable(msgspec.Struct, frozen=True):
    """The table of one keyspace, for keys of ``bits`` bits.

    - ``entries``: the keyspace's groups and their states.
    - ``moves``: the number of moves that the keyspace has begun.
    - ``move``: its current move; None between moves.
    - ``stage``: the progress of the current move; None between moves.
    - ``seen``: the moves of other keyspaces in which this keyspace took part: for each of these keyspaces, the highest
      number of such a move.
    """

    keyspace: Keyspace
    bits: int
    entries: Mapping[KeyGroup, TableEntry]
    moves: int = 0
    move: Move | None = None
    stage: MoveStage | None = None
    seen: Mapping[Keyspace, int] = {}

    def leaf(self, key: int) -> KeyGroup | None:
        """Return the leaf group in this table that contains ``key``; None if no leaf in this table does."""
        for depth in range(self.bits, -1, -1):
            group = KeyGroup.containing(key, depth, self.bits)
            entry = self.entries.get(group)
            if entry is not None and entry.state in LEAF_STATES:
                return group
        return None

    def state(self, group: KeyGroup) -> GroupState | None:
        """Return the state of a group; None if it is not in this table."""
        entry = self.entries.get(group)
        return entry.state if entry else None

    def with_entries(self, changed: Mapping[KeyGroup, TableEntry | None]) -> "ServerTable":
        """Return the table with the entries ``changed`` added or replaced; None as an entry removes the group."""
        entries = {**self.entries, **changed}
        remaining = {group: entry for group, entry in entries.items() if entry is not None}
        return msgspec.structs.replace(self, entries=remaining)


def empty_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return the table of a keyspace without any groups, for keys of ``bits`` bits."""
    return ServerTable(keyspace, bits, {})


def root_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return the initial table of the root's keyspace: one group with all keys of ``bits`` bits."""
    return ServerTable(keyspace, bits, {KeyGroup(0, 0, bits): TableEntry(GroupState.ACTIVE)})


_ENTRY = r"(active|arriving|returning|split|leaving)(?: parent=(\d+))?(?: right=(\d+))?"
_MOVE = r"(\d+) (split|merge) (\d+) ([01]*\*?) (giving|emptied|planned|taking)"


def to_fields(table: ServerTable) -> dict[str, str]:
    """Return the table as fields of a Redis hash, which :func:`from_fields` reads."""
    fields = {"bits": str(table.bits), "moves": str(table.moves)}
    if table.move is not None:
        move = table.move
        fields["move"] = f"{move.number} {move.kind} {move.child} {move.group.label} {table.stage}"
    fields |= {f"seen:{keyspace}": str(number) for keyspace, number in table.seen.items()}
    return fields | {group.label: _entry_text(entry) for group, entry in table.entries.items()}


def from_fields(keyspace: Keyspace, fields: Mapping[str, str], keyspaces: Keyspaces, bits: int) -> ServerTable:
    """Return a keyspace's table from the fields of its Redis hash; keys must have ``bits`` bits.

    Raises :class:`UnknownKeyspace` if the table belongs or refers to a keyspace that does not exist, and
    :class:`BadKey` if the fields are malformed or the table has keys of another length.
    """
    keyspaces.check(keyspace)
    if _number(fields.get("bits", "")) != bits:
        raise BadKey(f"Keyspace {keyspace} has keys of {fields.get('bits')} bits, not {bits}: it has another layout.")
    own = {name: text for name, text in fields.items() if name not in ("bits", "moves", "move")}
    seen = {_number(name[5:]): _number(text) for name, text in own.items() if name.startswith("seen:")}
    entries = {
        KeyGroup.from_label(name, bits): _entry(text) for name, text in own.items() if not name.startswith("seen:")
    }
    move, stage = _move(keyspace, fields["move"], bits) if "move" in fields else (None, None)
    named = {place for entry in entries.values() for place in (entry.parent, entry.right_child)}
    for place in {*seen, *named, move.child if move else None} - {None}:
        keyspaces.check(place or 0)
    return ServerTable(keyspace, bits, entries, _number(fields.get("moves", "")), move, stage, seen)


def _entry_text(entry: TableEntry) -> str:
    named = (("parent", entry.parent), ("right", entry.right_child))
    return " ".join([entry.state.value, *(f"{name}={place}" for name, place in named if place is not None)])


def _entry(text: str) -> TableEntry:
    found = fullmatch(_ENTRY, text)
    if found is None:
        raise BadKey(f"{text!r} describes no group of a keyspace's table.")
    state, *places = found.groups()
    return TableEntry(GroupState(state), *(None if place is None else int(place) for place in places))


def _move(keyspace: Keyspace, text: str, bits: int) -> tuple[Move, MoveStage]:
    found = fullmatch(_MOVE, text)
    if found is None:
        raise BadKey(f"{text!r} describes no move of a keyspace's table.")
    number, kind, child, label, stage = found.groups()
    return Move(int(number), MoveKind(kind), keyspace, int(child), KeyGroup.from_label(label, bits)), MoveStage(stage)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise BadKey(f"{text!r} is no number of a keyspace's table.")
    return int(text)
