"""A keyspace's ``ServerTable``: which key groups it has, and what it is doing with them (CLASH §V.B, Figure 3).

A group's ``standing``:

    ACTIVE     a leaf: this keyspace accepts for it
    ARRIVING   a leaf that was split off in its parent's keyspace: a part of its subscriptions is still there
    RETURNING  a leaf that was merged: a part of its right half's subscriptions is still in that one's keyspace
    SPLIT      not a leaf: its left child is here, its right child in ``right_child``
    LEAVING    given back to its parent's keyspace: what is still here only waits to be fetched
    RECALLED   a leaf: a right child that came back to its parent's keyspace whole, as its sibling is split

All but recalled leaves are in their own keyspace, the one that their virtual key maps to: as long as it is recalled, a
group is not split. We deviate: the paper leaves a right child where it is until its sibling is a leaf as well.

A keyspace carries out one *move* at a time: a split or merge of a group of its own, with the right child in another
keyspace, the *child*. A child follows moves of several others. Moves are numbered by the keyspace that carries them
out, and the child remembers the greatest number it has seen of each: whatever comes late or twice is recognised.

A table is kept as the fields of a Redis hash, which people can read and scripts can change, one field for each entry::

    bits           N
    moves          how many moves this keyspace has begun
    move           the one under way: NUMBER KIND CHILD GROUP STAGE
    seen:7         the greatest number of keyspace 7's moves that was seen here
    011*           a group: STANDING parent=… right=…; what there is not is left out
"""

from collections.abc import Mapping
from enum import StrEnum
from re import fullmatch

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, Keyspaces
from service.errors import BadKey


class Standing(StrEnum):
    """See the module's docstring."""

    ACTIVE = "active"
    ARRIVING = "arriving"
    RETURNING = "returning"
    SPLIT = "split"
    LEAVING = "leaving"
    RECALLED = "recalled"


LEAVES = (Standing.ACTIVE, Standing.ARRIVING, Standing.RETURNING, Standing.RECALLED)
AT_REST = (Standing.ACTIVE, Standing.RECALLED)
"""Leaves that have all their subscriptions."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One group of a table. ``parent`` is its parent's keyspace, None for the root."""

    standing: Standing
    parent: Keyspace | None = None
    right_child: Keyspace | None = None


class Kind(StrEnum):
    """Which way the right child moves: to its own keyspace, or back."""

    SPLIT = "split"
    MERGE = "merge"


class Stage(StrEnum):
    """How far a keyspace's own move is: a split gives, until nothing is left; a merge is planned, then takes."""

    GIVING = "giving"
    EMPTIED = "emptied"
    PLANNED = "planned"
    TAKING = "taking"


class Move(msgspec.Struct, frozen=True):
    """A right child between two keyspaces. It is also the proof that a client brings to the taker.

    ``keyspace`` is the parent's, which carries the move out and numbers it; ``group`` is the right child.
    """

    number: int
    kind: Kind
    keyspace: Keyspace
    child: Keyspace
    group: KeyGroup

    @property
    def donor(self) -> Keyspace:
        """Where the subscriptions come from."""
        return self.keyspace if self.kind is Kind.SPLIT else self.child

    @property
    def taker(self) -> Keyspace:
        """Where they go to."""
        return self.child if self.kind is Kind.SPLIT else self.keyspace

    @property
    def depth(self) -> int:
        """The depth that leads to the taker: the right child's own, or that of its parent."""
        return self.group.depth if self.kind is Kind.SPLIT else self.group.depth - 1


class ServerTable(msgspec.Struct, frozen=True):
    """What one keyspace knows. ``moves`` is how many it has begun; ``move`` the one under way, and its ``stage``.

    ``seen`` is the greatest number of each other keyspace's moves that this one had a part in.
    """

    keyspace: Keyspace
    bits: int
    entries: Mapping[KeyGroup, Entry]
    moves: int = 0
    move: Move | None = None
    stage: Stage | None = None
    seen: Mapping[Keyspace, int] = {}

    def leaf(self, key: int) -> KeyGroup | None:
        """Return the leaf group here that has the key."""
        for depth in range(self.bits, -1, -1):
            group = KeyGroup.around(key, depth, self.bits)
            entry = self.entries.get(group)
            if entry is not None and entry.standing in LEAVES:
                return group
        return None

    def standing(self, group: KeyGroup) -> Standing | None:
        """Return how a group stands here; None if it is not here."""
        entry = self.entries.get(group)
        return entry.standing if entry else None

    def with_entries(self, changed: Mapping[KeyGroup, Entry | None]) -> "ServerTable":
        """Return the table with these entries; None removes one."""
        entries = {**self.entries, **changed}
        kept = {group: entry for group, entry in entries.items() if entry is not None}
        return msgspec.structs.replace(self, entries=kept)


def empty_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return the table of a keyspace that has no group yet."""
    return ServerTable(keyspace, bits, {})


def root_table(keyspace: Keyspace, bits: int) -> ServerTable:
    """Return the table of the root's keyspace before the first split: one group of all keys."""
    return ServerTable(keyspace, bits, {KeyGroup(0, 0, bits): Entry(Standing.ACTIVE)})


_ENTRY = r"(active|arriving|returning|split|leaving|recalled)(?: parent=(\d+))?(?: right=(\d+))?"
_MOVE = r"(\d+) (split|merge) (\d+) ([01]*\*?) (giving|emptied|planned|taking)"


def to_fields(table: ServerTable) -> dict[str, str]:
    """Return the fields that :func:`from_fields` reads."""
    fields = {"bits": str(table.bits), "moves": str(table.moves)}
    if table.move is not None:
        move = table.move
        fields["move"] = f"{move.number} {move.kind} {move.child} {move.group.label} {table.stage}"
    fields |= {f"seen:{keyspace}": str(number) for keyspace, number in table.seen.items()}
    return fields | {group.label: _entry_text(entry) for group, entry in table.entries.items()}


def from_fields(keyspace: Keyspace, fields: Mapping[str, str], keyspaces: Keyspaces, bits: int) -> ServerTable:
    """Read a keyspace's table of keys of so many bits.

    Raises :class:`UnknownKeyspace` if it names a keyspace that there is not, or is itself one, and :class:`BadKey` if
    its groups are not of such keys or it is not a table.
    """
    keyspaces.check(keyspace)
    if _number(fields.get("bits", "")) != bits:
        raise BadKey(f"Keyspace {keyspace} has keys of {fields.get('bits')} bits, not {bits}: it has another layout.")
    own = {name: text for name, text in fields.items() if name not in ("bits", "moves", "move")}
    seen = {_number(name[5:]): _number(text) for name, text in own.items() if name.startswith("seen:")}
    entries = {
        KeyGroup.labelled(name, bits): _entry(text) for name, text in own.items() if not name.startswith("seen:")
    }
    move, stage = _move(keyspace, fields["move"], bits) if "move" in fields else (None, None)
    named = {place for entry in entries.values() for place in (entry.parent, entry.right_child)}
    for place in {*seen, *named, move.child if move else None} - {None}:
        keyspaces.check(place or 0)
    return ServerTable(keyspace, bits, entries, _number(fields.get("moves", "")), move, stage, seen)


def _entry_text(entry: Entry) -> str:
    named = (("parent", entry.parent), ("right", entry.right_child))
    return " ".join([entry.standing.value, *(f"{name}={place}" for name, place in named if place is not None)])


def _entry(text: str) -> Entry:
    found = fullmatch(_ENTRY, text)
    if found is None:
        raise BadKey(f"{text!r} describes no group of a keyspace's table.")
    standing, *places = found.groups()
    return Entry(Standing(standing), *(None if place is None else int(place) for place in places))


def _move(keyspace: Keyspace, text: str, bits: int) -> tuple[Move, Stage]:
    found = fullmatch(_MOVE, text)
    if found is None:
        raise BadKey(f"{text!r} describes no move of a keyspace's table.")
    number, kind, child, label, stage = found.groups()
    return Move(int(number), Kind(kind), keyspace, int(child), KeyGroup.labelled(label, bits)), Stage(stage)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise BadKey(f"{text!r} is no number of a keyspace's table.")
    return int(text)
