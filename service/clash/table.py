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
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.clash.groups import KeyGroup
from service.clash.mapping import Keyspace


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
