"""Loads of key groups, in deliveries per second, and what a keeper splits and merges (CLASH §VI.A).

It splits an overloaded keyspace's hottest group, and merges the coldest pair that fits.

Hysteresis: a split is due above ``overload``; a merge only if the whole group leaves its keyspace below ``merged``. No
load that wobbles by less than ±x splits and merges again if ``merged < overload · (1 - x) / (1 + x)``.

We deviate: the paper merges where a server is below 54 %. But two halves of 55 and 30 % need no two servers, and one
below 54 % has no use for what would fill it: what counts is what comes of it.

And the paper leaves a cold group where it is for as long as its sibling is hot, and split: then a keyspace is there for
next to nothing. Ours recall a right child that has one for itself, if their parent's can carry it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.move_steps import MergeGroup, RecallGroup, SplitGroup
from service.clash.server_table import AT_REST, LEAVES, ServerTable, Standing

SUBSCRIPTIONS_PER_DELIVERY_S = 1000.0
"""So many subscriptions that nobody is told anything weigh as much as one delivery a second."""


def group_load(deliveries_per_s: float, subscriptions: float) -> float:
    """Return the load of a group, in deliveries per second.

    Fan-out reads each subscription once per delta, so work is linear in deliveries. Storage is a second, smaller
    term, which keeps large groups apart that are quiet at present. We deviate: the paper's load is logarithmic in the
    number of stored queries (§VI.A), because its servers match data against an index of them; ours walk all.
    """
    return deliveries_per_s + subscriptions / SUBSCRIPTIONS_PER_DELIVERY_S


class Memory(msgspec.Struct, frozen=True):
    """How fast rates fade: by half in so many seconds, what counts *now* and what counts for a *while*.

    We deviate: the paper looks at one interval alone. A group is hot soon, but cold only after a while: news comes in
    bursts, and who has just split would merge again between two of them.
    """

    now_s: float
    while_s: float

    @classmethod
    def measuring(cls, interval_s: float) -> "Memory":
        """Return the memory of who measures so often.

        A walk through a large channel takes some intervals, and has gone through a leaf in one of them: of three it
        can be told how often.
        """
        return cls(3 * interval_s, 15 * interval_s)


class Rate(msgspec.Struct, frozen=True):
    """Deliveries per second, now and for a while.

    Both are means, so those of many prefixes can be added, of parts of a prefix as well.
    """

    current: float = 0.0
    lately: float = 0.0

    def after(self, age_s: float, memory: Memory) -> "Rate":
        """Return what counts of this after so long. A clock that was set back ages nothing."""
        return Rate(self.current * _left(age_s, memory.now_s), self.lately * _left(age_s, memory.while_s))

    def with_measured(self, per_s: float, elapsed_s: float, memory: Memory) -> "Rate":
        """Return the rate at the end of so many seconds in which it was so much; ``self`` is what counts of before."""
        now, lately = _left(elapsed_s, memory.now_s), _left(elapsed_s, memory.while_s)
        return Rate(self.current + per_s * (1 - now), self.lately + per_s * (1 - lately))


def _left(age_s: float, half_life_s: float) -> float:
    return float(0.5 ** (max(age_s, 0.0) / half_life_s))


def parted(rates: Mapping[KeyGroup, float], group: KeyGroup) -> tuple[dict[KeyGroup, float], dict[KeyGroup, float]]:
    """Return the rates that go with a group that leaves a keyspace, and what changes of those that stay (0: gone).

    Of a prefix that the group is a part of, a share goes, and the rest stays by its own prefixes.
    """
    going: dict[KeyGroup, float] = {}
    staying: dict[KeyGroup, float] = {}
    for prefix, rate in rates.items():
        shared = prefix.shared(group)
        if shared is None:
            continue
        going[shared] = going.get(shared, 0.0) + rate / (1 << shared.depth - prefix.depth)
        staying[prefix] = 0.0
        for depth in range(prefix.depth + 1, shared.depth + 1):
            part = KeyGroup.around(group.key, depth, group.bits)
            sibling = part.parent.left if part.key != part.parent.key else part.parent.right
            staying[sibling] = staying.get(sibling, rates.get(sibling, 0.0)) + rate / (1 << depth - prefix.depth)
    return going, staying


def loads(sizes: Mapping[KeyGroup, int], rates: Mapping[KeyGroup, float]) -> dict[KeyGroup, float]:
    """Return the load of each leaf of a keyspace, given its subscriptions, and the deliveries per second of prefixes.

    A prefix can be any part of a leaf, usually a channel, so that a rate still says where it belongs when its leaf has
    split. It can also be a leaf that has split since: then its halves are taken to have the same share.
    """
    leaves = sorted(sizes)
    starts = [leaf.key for leaf in leaves]
    deliveries = dict.fromkeys(leaves, 0.0)
    for prefix, rate in rates.items():
        around = bisect_right(starts, prefix.key) - 1
        if around >= 0 and leaves[around].depth <= prefix.depth and prefix.key in leaves[around]:
            deliveries[leaves[around]] += rate
            continue
        for leaf in leaves[bisect_left(starts, prefix.key) : bisect_right(starts, prefix.last)]:
            deliveries[leaf] += rate / (1 << leaf.depth - prefix.depth)
    return {leaf: group_load(deliveries[leaf], size) for leaf, size in sizes.items()}


Loads = Mapping[Keyspace, Mapping[KeyGroup, float]]
"""Of each leaf of some keyspaces."""


class Limits(msgspec.Struct, frozen=True):
    """Shares of a keyspace's ``capacity``, which is a load.

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
