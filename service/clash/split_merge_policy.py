"""Loads of key groups, in deliveries per second, and the choice of groups to split and merge (CLASH §VI.A).

An overloaded keyspace (a partition of the store) splits its busiest group. A keyspace with spare capacity merges the
two halves of a group. The keyspace chooses the pair of halves with the lowest load, provided that it has the capacity
for this load.

A split is due if a keyspace's load exceeds ``overload``. A merge is due only if the load stays below ``merge_limit``
with the merged group. A load that fluctuates by less than ±x never causes a split after a merge if ``merge_limit <
overload · (1 - x) / (1 + x)``.

Deviation from the paper: the paper merges where a server's load is below 54 %. Here the criterion is the load after the
merge. Two halves of 55 and 30 % do not need two servers, and a server below 54 % may not have the capacity for the
other half.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.move_steps import MergeGroup, SplitGroup
from service.clash.server_table import GroupState, ServerTable

SUBSCRIPTIONS_PER_DELIVERY_S = 1000.0
"""Number of idle subscriptions whose load equals one delivery per second."""


def group_load(deliveries_per_s: float, subscriptions: float) -> float:
    """Return the load of a group from its deliveries per second and its number of subscriptions.

    The load is in deliveries per second. It grows linearly with the deliveries, because a delivery reads each
    subscription once. A second, smaller term grows with the number of subscriptions.
    """
    # The second term splits large groups even while they are quiet. Deviation: the paper's load is logarithmic in the
    # number of stored queries (§VI.A), because its servers match data against an index of queries.
    return deliveries_per_s + subscriptions / SUBSCRIPTIONS_PER_DELIVERY_S


class HalfLives(msgspec.Struct, frozen=True):
    """Half-lives in seconds of the two delivery rates of a group: the *current* and the *long-term* rate.

    After one half-life without deliveries, a rate has decayed to a half.

    Deviation from the paper: the paper considers the last interval only. Here a group counts as busy at once, but as
    quiet only after a while. Updates come in bursts, and a group that has just split would otherwise merge again
    between two bursts.
    """

    current_s: float
    long_term_s: float

    @classmethod
    def for_interval(cls, interval_s: float) -> "HalfLives":
        """Return the half-lives for rates that are measured every ``interval_s`` seconds."""
        # A delivery to a large channel takes several intervals, but reaches a given leaf group in only one of them.
        # About three intervals are therefore needed to measure a rate.
        return cls(3 * interval_s, 15 * interval_s)

    def remaining_shares(self, age_s: float) -> tuple[float, float]:
        """Return the shares (0 to 1) of the current and of the long-term rate that remain after ``age_s`` seconds."""
        age_s = max(age_s, 0.0)
        return 0.5 ** (age_s / self.current_s), 0.5 ** (age_s / self.long_term_s)


class DeliveryRate(msgspec.Struct, frozen=True):
    """Deliveries per second, as two exponentially decaying means with different half-lives (:class:`HalfLives`).

    Rates can be added.
    """

    current: float = 0.0
    long_term: float = 0.0

    def after(self, age_s: float, half_lives: HalfLives) -> "DeliveryRate":
        """Return the rate after ``age_s`` seconds without deliveries.

        If ``age_s`` is negative, it counts as zero.
        """
        # The age is negative when a clock was set back.
        current, long_term = half_lives.remaining_shares(age_s)
        return DeliveryRate(self.current * current, self.long_term * long_term)

    def with_measured(self, per_s: float, elapsed_s: float, half_lives: HalfLives) -> "DeliveryRate":
        """Return the rate after an interval of ``elapsed_s`` seconds with ``per_s`` deliveries per second.

        This rate must already have decayed by ``elapsed_s`` seconds (:meth:`after`).
        """
        current, long_term = half_lives.remaining_shares(elapsed_s)
        return DeliveryRate(self.current + per_s * (1 - current), self.long_term + per_s * (1 - long_term))


def split_rates(
    rates: Mapping[KeyGroup, float], group: KeyGroup
) -> tuple[dict[KeyGroup, float], dict[KeyGroup, float]]:
    """Divide the delivery rates of a keyspace when ``group`` moves to another keyspace; return (moving, staying).

    - ``rates``: the deliveries per second to each prefix in the keyspace.
    - ``moving``: the rates of the prefixes that move with the group.
    - ``staying``: the new rates of the other prefixes whose rates change. A prefix with the new rate 0 is to be
      removed.

    If a prefix contains the group, its rate is divided: the group's share moves, and the rest is divided among the
    other parts of the prefix.
    """
    going: dict[KeyGroup, float] = {}
    staying: dict[KeyGroup, float] = {}
    for prefix, rate in rates.items():
        shared = prefix.intersection(group)
        if shared is None:
            continue
        going[shared] = going.get(shared, 0.0) + rate / (1 << shared.depth - prefix.depth)
        staying[prefix] = 0.0
        for depth in range(prefix.depth + 1, shared.depth + 1):
            part = KeyGroup.containing(group.key, depth, group.bits)
            sibling = part.parent.left if part.key != part.parent.key else part.parent.right
            staying[sibling] = staying.get(sibling, rates.get(sibling, 0.0)) + rate / (1 << depth - prefix.depth)
    return going, staying


def leaf_loads(sizes: Mapping[KeyGroup, int], rates: Mapping[KeyGroup, float]) -> dict[KeyGroup, float]:
    """Return the load of each group of a keyspace in deliveries per second.

    - ``sizes``: the number of subscriptions of each group that is not split.
    - ``rates``: the deliveries per second to each prefix. A prefix may be smaller or larger than a group.

    The rate of a prefix that contains several groups is divided among them in proportion to their numbers of keys.
    """
    # A prefix is usually a part of a leaf group, such as a channel, so that its rate can still be assigned after the
    # leaf has split.
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


LoadsByKeyspace = Mapping[Keyspace, Mapping[KeyGroup, float]]
"""The loads of the groups that are not split (leaves), first by keyspace and then by group."""


class LoadLimits(msgspec.Struct, frozen=True):
    """Limits of a keyspace's load, as shares of ``capacity``, which is in deliveries per second.

    - ``overload``: a keyspace with a higher load splits a group.
    - ``merge_limit``: a merge must leave the load below this limit.

    Measured loads fluctuate by about 12 % even if deliveries are steady, because deliveries come in bursts.
    """

    capacity: float
    overload: float = 0.90
    merge_limit: float = 0.70


class SiblingPair(msgspec.Struct, frozen=True):
    """A group of keys with two halves, neither of which is split.

    - ``left``, ``right``: the loads of the halves in deliveries per second.
    - ``local``: whether both halves are in the same keyspace.
    """

    group: KeyGroup
    left: float
    right: float
    local: bool


def sibling_pairs(
    table: ServerTable, tables: Mapping[Keyspace, ServerTable] | Sequence[ServerTable], loads: LoadsByKeyspace
) -> list[SiblingPair]:
    """Return the groups of a keyspace whose halves could be merged: neither is split, and both have all their records.

    Args:
        table: The table of the keyspace.
        tables: The tables of the keyspaces in which the right halves are.
        loads: The loads of the groups of these keyspaces, including the keyspace of ``table``.
    """
    found = []
    for group, entry in table.entries.items():
        child = entry.right_child
        if child is None or table.state(group.left) is not GroupState.ACTIVE:
            continue
        if tables[child].state(group.right) is GroupState.ACTIVE:
            left = loads.get(table.keyspace, {}).get(group.left, 0.0)
            right = loads.get(child, {}).get(group.right, 0.0)
            found.append(SiblingPair(group, left, right, local=child == table.keyspace))
    return found


def choose_split(keyspace: Keyspace, leaves: Mapping[KeyGroup, float], limits: LoadLimits) -> SplitGroup | None:
    """Return the split that a keyspace should begin; None if its load is within ``limits``, or no group can be split.

    ``leaves`` has the load of each group of the keyspace in deliveries per second.
    """
    if sum(leaves.values()) <= limits.overload * limits.capacity:
        return None
    hottest = max((group for group in leaves if group.depth < group.bits), key=leaves.__getitem__, default=None)
    return SplitGroup(keyspace, hottest) if hottest else None


def choose_merge(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], pairs: Sequence[SiblingPair], limits: LoadLimits
) -> MergeGroup | None:
    """Return the merge that a keyspace should begin; None if every merge would leave its load above the limit.

    - ``leaves``: the long-term load of each group of the keyspace.
    - ``pairs``: the result of :func:`sibling_pairs` for long-term loads.
    """
    most = limits.merge_limit * limits.capacity - sum(leaves.values())
    fitting = (pair for pair in pairs if (0.0 if pair.local else pair.right) <= most)
    coldest = min(fitting, key=lambda pair: pair.left + pair.right, default=None)
    return MergeGroup(keyspace, coldest.group) if coldest else None
