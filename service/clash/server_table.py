"""The table of one keyspace (a partition of the store): its groups of keys, and the move in progress.

The table is the ``ServerTable`` of CLASH (§V.B, Figure 3). A *move* is a split or merge in which the right half of a
group moves from one keyspace to another. A *leaf* is a group that is not split. A group is in one of these states:

    ACTIVE     a leaf, complete: this keyspace accepts its keys
    ARRIVING   a leaf that was split off in another keyspace: some of its records are still in that keyspace
    RETURNING  a leaf that was merged: some records of its right half are still in that half's keyspace
    SPLIT      not a leaf: its left half is here, its right half in ``right_child``
    LEAVING    returned to the keyspace of the undivided group: the remaining records are waiting to be fetched

Each leaf is in the keyspace to which its prefix, padded with zeros, is mapped.

A keyspace carries out one move of its own groups at a time, and numbers these moves. The other keyspace of such a move
is called its *child*. A keyspace can be the child in moves of several other keyspaces at the same time. It remembers
the highest move number that it has seen from each of them, to recognise steps that are late or repeated.

A table is stored as a Redis hash with these fields::

    bits           length of a key in bits (N)
    moves          number of moves that this keyspace has begun
    move           the move in progress: NUMBER KIND CHILD GROUP STAGE
    seen:7         the highest move number of keyspace 7 that this keyspace has seen
    011*           a group: STATE parent=… right=…; absent parts are left out
"""

from collections.abc import Mapping
from enum import StrEnum
from re import fullmatch

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, Keyspaces
from service.errors import BadKey


class GroupState(StrEnum):
    """The state of a group of keys in the table of one keyspace, which is a partition of the store.

    - ``ACTIVE``: not split; has all its records.
    - ``ARRIVING``: not split; still receives its records after a split.
    - ``RETURNING``: not split; still receives the records of its right half in a merge.
    - ``SPLIT``: divided into two halves.
    - ``LEAVING``: given up in a merge; its remaining records still have to be fetched by another keyspace.
    """

    ACTIVE = "active"
    ARRIVING = "arriving"
    RETURNING = "returning"
    SPLIT = "split"
    LEAVING = "leaving"


LEAF_STATES = (GroupState.ACTIVE, GroupState.ARRIVING, GroupState.RETURNING)
"""The states of groups that are not split (leaves)."""


class TableEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry for one group in a keyspace's table.

    - ``state``: the state of the group.
    - ``parent``: the keyspace of the larger group that was split to create this group; None for the group of all
      keys.
    - ``right_child``: the keyspace of this group's right half; None if the group is not split.
    """

    state: GroupState
    parent: Keyspace | None = None
    right_child: Keyspace | None = None


class MoveKind(StrEnum):
    """The direction in which the right half of a group moves.

    A SPLIT moves it to the keyspace to which it is mapped. A MERGE moves it back to the keyspace of the undivided
    group.
    """

    SPLIT = "split"
    MERGE = "merge"


class MoveStage(StrEnum):
    """The stage that a split or merge has reached.

    - ``GIVING``: a split; records of the right half are still in the old keyspace.
    - ``EMPTIED``: a split; all records of the right half have left the old keyspace.
    - ``PLANNED``: a merge; the right half's keyspace has not given up the right half yet.
    - ``TAKING``: a merge; the keyspace of the undivided group receives the records of the right half.
    """

    GIVING = "giving"
    EMPTIED = "emptied"
    PLANNED = "planned"
    TAKING = "taking"


class Move(msgspec.Struct, frozen=True):
    """A split or merge of a group, in which the group's right half moves from one keyspace to another.

    - ``number``: the number of the move. Each keyspace numbers the moves that it has begun.
    - ``keyspace``: the keyspace (a partition of the store) of the undivided group. It has begun the move.
    - ``child``: the other keyspace. A split moves the right half to it; a merge takes the right half back from it.
    - ``group``: the right half.

    A move also serves as a proof. A client that has been redirected sends it to the receiving keyspace, to show that
    the group now belongs to that keyspace.
    """

    number: int
    kind: MoveKind
    keyspace: Keyspace
    child: Keyspace
    group: KeyGroup

    @property
    def donor(self) -> Keyspace:
        """The keyspace that gives the records away."""
        return self.keyspace if self.kind is MoveKind.SPLIT else self.child

    @property
    def taker(self) -> Keyspace:
        """The keyspace that receives the records."""
        return self.child if self.kind is MoveKind.SPLIT else self.keyspace

    @property
    def leaf(self) -> KeyGroup:
        """The group that receives the records: the right half in a split, and the undivided group in a merge."""
        return self.group if self.kind is MoveKind.SPLIT else self.group.parent


class ServerTable(msgspec.Struct, frozen=True):
    """The table of a keyspace (a partition of the store): its groups of keys, and the split or merge in progress.

    - ``bits``: the length of a key in bits.
    - ``entries``: the groups of keys in this keyspace, with their states.
    - ``moves``: the number of moves (splits and merges) that this keyspace has begun.
    - ``move``: the current move; None if there is none.
    - ``stage``: the stage of the current move; None if there is none.
    - ``seen``: for each other keyspace, the number of its latest move that this keyspace has seen.
    """

    keyspace: Keyspace
    bits: int
    entries: Mapping[KeyGroup, TableEntry]
    moves: int = 0
    move: Move | None = None
    stage: MoveStage | None = None
    seen: Mapping[Keyspace, int] = {}

    def leaf(self, key: int) -> KeyGroup | None:
        """Return the group of this table that contains ``key`` and is not split; None if there is none."""
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
        """Return a copy of the table in which the entries in ``changed`` are added or replaced.

        A group that is mapped to None is removed.
        """
        entries = {**self.entries, **changed}
        remaining = {group: entry for group, entry in entries.items() if entry is not None}
        return msgspec.structs.replace(self, entries=remaining)


def empty_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return an empty table for ``keyspace``, whose keys are ``bits`` bits long."""
    return ServerTable(keyspace, bits, {})


def root_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return the initial table of ``keyspace``, whose only group contains all keys of ``bits`` bits."""
    return ServerTable(keyspace, bits, {KeyGroup(0, 0, bits): TableEntry(GroupState.ACTIVE)})


_ENTRY = r"(active|arriving|returning|split|leaving)(?: parent=(\d+))?(?: right=(\d+))?"
_MOVE = r"(\d+) (split|merge) (\d+) ([01]*\*?) (giving|emptied|planned|taking)"


def to_fields(table: ServerTable) -> dict[str, str]:
    """Return the table as fields of a Redis hash; :func:`from_fields` is the inverse."""
    fields = {"bits": str(table.bits), "moves": str(table.moves)}
    if table.move is not None:
        move = table.move
        fields["move"] = f"{move.number} {move.kind} {move.child} {move.group.label} {table.stage}"
    fields |= {f"seen:{keyspace}": str(number) for keyspace, number in table.seen.items()}
    return fields | {group.label: _entry_text(entry) for group, entry in table.entries.items()}


def from_fields(keyspace: Keyspace, fields: Mapping[str, str], keyspaces: Keyspaces, bits: int) -> ServerTable:
    """Return the table of ``keyspace``, read from the fields of its Redis hash; keys must have ``bits`` bits.

    Raises :class:`UnknownKeyspace` if the table belongs or refers to a keyspace that does not exist, and
    :class:`BadKey` if the fields are malformed or the table's keys have another length.
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
