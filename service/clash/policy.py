"""What a keeper splits and merges: an overloaded keyspace's hottest group, an idle one's coldest pair (CLASH §VI.A).

Hysteresis: a split is due above ``overload``; a merge is considered where a keyspace is below ``underload``, and
carried out only if the whole group leaves its keyspace below ``merged``, far enough from the next split.
"""

from collections.abc import Mapping, Sequence

import msgspec

from service.clash.groups import KeyGroup
from service.clash.mapping import Keyspace
from service.clash.steps import MergeGroup, SplitGroup
from service.clash.table import ServerTable, Standing

Loads = Mapping[Keyspace, Mapping[KeyGroup, float]]
"""Of each leaf of some keyspaces."""


class Limits(msgspec.Struct, frozen=True):
    """Shares of a keyspace's ``capacity``, which is a load (:mod:`service.clash.load`)."""

    capacity: float
    overload: float = 0.90
    underload: float = 0.54
    merged: float = 0.84


class Pair(msgspec.Struct, frozen=True):
    """A group whose two halves are leaves: their loads, and that of the right half's whole keyspace.

    ``local`` says that both are in one keyspace.
    """

    group: KeyGroup
    left: float
    right: float
    right_keyspace: float
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
        if tables[child].standing(group.right) is Standing.ACTIVE:
            there = loads.get(child, {})
            left, right = loads.get(table.keyspace, {}).get(group.left, 0.0), there.get(group.right, 0.0)
            found.append(Pair(group, left, right, sum(there.values()), local=child == table.keyspace))
    return found


def wanted(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], pairs: Sequence[Pair], limits: Limits
) -> SplitGroup | MergeGroup | None:
    """Return what a keyspace should do now, given the loads of its leaves and the pairs it could merge."""
    load = sum(leaves.values())
    if load > limits.overload * limits.capacity:
        hottest = max((group for group in leaves if group.depth < group.bits), key=leaves.__getitem__, default=None)
        return SplitGroup(keyspace, hottest) if hottest else None
    coldest = min(
        (pair for pair in pairs if _mergeable(pair, load, limits)),
        key=lambda pair: pair.left + pair.right,
        default=None,
    )
    return MergeGroup(keyspace, coldest.group) if coldest else None


def _mergeable(pair: Pair, load: float, limits: Limits) -> bool:
    idle = min(load, pair.right_keyspace) < limits.underload * limits.capacity
    after = load if pair.local else load + pair.right
    return idle and after <= limits.merged * limits.capacity
