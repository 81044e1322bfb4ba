"""What a keeper splits and merges: an overloaded keyspace's hottest group, the coldest pair that fits (CLASH §VI.A).

Hysteresis: a split is due above ``overload``; a merge only if the whole group leaves its keyspace below ``merged``. No
load that wobbles by less than ±x splits and merges again if ``merged < overload · (1 - x) / (1 + x)``.

We deviate: the paper merges where a server is below 54 %. But two halves of 55 and 30 % need no two servers, and one
below 54 % has no use for what would fill it: what counts is what comes of it.

And the paper leaves a cold group where it is for as long as its sibling is hot, and split: then a keyspace is there for
next to nothing. Ours recall a right child that has one for itself, if their parent's can carry it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from service.clash.groups import KeyGroup, Keyspace
from service.clash.steps import MergeGroup, RecallGroup, SplitGroup
from service.clash.table import AT_REST, LEAVES, ServerTable, Standing

Loads = Mapping[Keyspace, Mapping[KeyGroup, float]]
"""Of each leaf of some keyspaces."""


class Limits(msgspec.Struct, frozen=True):
    """Shares of a keyspace's ``capacity``, which is a load (:mod:`service.clash.load`).

    Fan-outs come in walks: what is seen of one that goes on all the time wobbles by some 12 %.
    """

    capacity: float
    overload: float = 0.90
    merged: float = 0.70


class Pair(msgspec.Struct, frozen=True):
    """A group whose two halves are leaves, and their loads. ``local`` says that both are in one keyspace."""

    group: KeyGroup
    left: float
    right: float
    local: bool


def pairs(
    table: ServerTable, tables: Mapping[Keyspace, ServerTable] | Sequence[ServerTable], loads: Loads
) -> list[Pair]:
    """Return the pairs of leaves at rest that a keyspace could merge, given the tables and loads of right children."""
    found = []
    for group, entry in table.entries.items():
        child = entry.right_child
        if child is None or table.standing(group.left) is not Standing.ACTIVE:
            continue
        if tables[child].standing(group.right) in AT_REST:
            left = loads.get(table.keyspace, {}).get(group.left, 0.0)
            right = loads.get(child, {}).get(group.right, 0.0)
            found.append(Pair(group, left, right, local=child == table.keyspace))
    return found


def lone_rights(
    table: ServerTable, tables: Mapping[Keyspace, ServerTable] | Sequence[ServerTable], loads: Loads
) -> dict[KeyGroup, float]:
    """Return the split groups whose left half is split, while the right one has a keyspace for itself, and its load."""
    found = {}
    for group, entry in table.entries.items():
        child = entry.right_child
        if child is None or child == table.keyspace or table.standing(group.left) is not Standing.SPLIT:
            continue
        leaves = [leaf for leaf, other in tables[child].entries.items() if other.standing in LEAVES]
        if leaves == [group.right] and tables[child].standing(group.right) is Standing.ACTIVE:
            found[group] = loads.get(child, {}).get(group.right, 0.0)
    return found


def split_due(keyspace: Keyspace, leaves: Mapping[KeyGroup, float], limits: Limits) -> SplitGroup | None:
    """Return what a keyspace should split now, given the loads of its leaves."""
    if sum(leaves.values()) <= limits.overload * limits.capacity:
        return None
    hottest = max((group for group in leaves if group.depth < group.bits), key=leaves.__getitem__, default=None)
    return SplitGroup(keyspace, hottest) if hottest else None


def merge_due(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], pairs: Sequence[Pair], limits: Limits
) -> MergeGroup | None:
    """Return what a keyspace should merge, given what its leaves have weighed for a while, and the pairs it could."""
    most = limits.merged * limits.capacity - sum(leaves.values())
    fitting = (pair for pair in pairs if (0.0 if pair.local else pair.right) <= most)
    coldest = min(fitting, key=lambda pair: pair.left + pair.right, default=None)
    return MergeGroup(keyspace, coldest.group) if coldest else None


def recall_due(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], lone_rights: Mapping[KeyGroup, float], limits: Limits
) -> RecallGroup | None:
    """Return what a keyspace should take back whole, given what its leaves, and those, have weighed for a while."""
    most = limits.merged * limits.capacity - sum(leaves.values())
    fitting = (group for group, right in lone_rights.items() if right <= most)
    coldest = min(fitting, key=lone_rights.__getitem__, default=None)
    return RecallGroup(keyspace, coldest) if coldest else None
