"""Loads of key groups, in deliveries per second, and the choice of groups to split and merge (CLASH §VI.A).

An overloaded keyspace (a partition of the store) splits its busiest group. A keyspace with spare capacity merges the
two halves of a group. Of all pairs of halves that it has the capacity to merge, it chooses the pair with the lowest
load.

A split is due if a keyspace's load exceeds ``overload``. A merge is due only if the keyspace's load would stay within
``merge_limit`` after the merge. To keep a load that fluctuates by up to ±x from causing a split right after a merge,
choose ``merge_limit < overload · (1 - x) / (1 + x)``.

Deviation from the paper: the paper merges where a server's load is below 54 %. Here the criterion is the load after the
merge. Two halves with loads of 55 % and 30 % do not need two servers; and a server whose load is below 54 % may lack
the capacity for the other half.
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
    """Return a group's load, in deliveries per second: its deliveries, plus a small term for its subscriptions."""
    # The second term splits large groups even while they are quiet. Deviation: the paper's load is logarithmic in the
    # number of stored queries (§VI.A), because its servers match data against an index of queries.
    return deliveries_per_s + subscriptions / SUBSCRIPTIONS_PER_DELIVERY_S


class HalfLives(msgspec.Struct, frozen=True):
    """The half-lives in seconds of a group's two delivery rates, the *current* and the *long-term* rate.

    Without deliveries, a rate falls by half in each half-life.

    Deviation from the paper: the paper considers only the rate in the last measuring interval. With two rates, a busy
    group is recognised at once, and a quiet group only after some time. Otherwise a group that has just been split
    would be merged again between two bursts of updates.
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
        """Return the fractions (0 to 1) of the current and the long-term rate that remain after ``age_s`` seconds."""
        age_s = max(age_s, 0.0)
        return 0.5 ** (age_s / self.current_s), 0.5 ** (age_s / self.long_term_s)


class DeliveryRate(msgspec.Struct, frozen=True):
    """Deliveries per second, as two exponentially decaying averages with different half-lives (:class:`HalfLives`).

    Rates can be added with ``+``.
    """

    current: float = 0.0
    long_term: float = 0.0

    def after(self, age_s: float, half_lives: HalfLives) -> "DeliveryRate":
        """Return the rate after ``age_s`` seconds without deliveries.

        A negative ``age_s`` counts as zero.
        """
        # The age is negative when a clock was set back.
        current, long_term = half_lives.remaining_shares(age_s)
        return DeliveryRate(self.current * current, self.long_term * long_term)

    def with_measured(self, per_s: float, elapsed_s: float, half_lives: HalfLives) -> "DeliveryRate":
        """Return the rate updated with a measurement of ``per_s`` deliveries per second over ``elapsed_s`` seconds.

        Call :meth:`after` first, so that this rate has already decayed by ``elapsed_s`` seconds.
        """
        current, long_term = half_lives.remaining_shares(elapsed_s)
        return DeliveryRate(self.current + per_s * (1 - current), self.long_term + per_s * (1 - long_term))


def split_rates(
    rates: Mapping[KeyGroup, float], group: KeyGroup
) -> tuple[dict[KeyGroup, float], dict[KeyGroup, float]]:
    """Divide a keyspace's delivery rates when ``group`` moves to another keyspace; return (moving, staying).

    - ``rates``: maps each prefix to the deliveries per second to the keys with this prefix.
    - ``moving``: the rates that the other keyspace takes over.
    - ``staying``: the new values of the rates that change in this keyspace. A rate of 0 means that the prefix is to
      be removed.

    If only some of the keys with a prefix move, the remaining keys get longer prefixes. The rate of the old prefix is
    divided among ``group`` and these prefixes, in proportion to how many keys each can contain.
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
    """Map each unsplit group of a keyspace to its load in deliveries per second.

    - ``sizes``: the number of subscriptions in each unsplit group.
    - ``rates``: maps each prefix to the deliveries per second to the keys with this prefix. The prefix may be shorter
      or longer than the prefix of a group.

    If the keys with a prefix belong to several groups, the prefix's rate is divided among these groups, in proportion
    to how many keys each group can contain.
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
    """Limits on a keyspace's load.

    - ``capacity``: the load that a keyspace can carry, in deliveries per second.
    - ``overload``: a keyspace whose load exceeds this fraction of the capacity splits a group.
    - ``merge_limit``: the load after a merge must not exceed this fraction of the capacity.

    ``merge_limit`` must be well below ``overload``. Deliveries come in bursts, so that measured loads fluctuate by
    about 12 % even if their average is constant.
    """

    capacity: float
    overload: float = 0.90
    merge_limit: float = 0.70


class SiblingPair(msgspec.Struct, frozen=True):
    """The two halves of a group of keys; neither half is split.

    - ``group``: the undivided group.
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
    """Return the pairs of halves that could be merged: neither half is split, and both have all their records.

    - ``table``: the table of the keyspace whose groups are considered.
    - ``tables``: the tables of the keyspaces that hold the right halves.
    - ``loads``: the loads of the groups in the keyspaces of ``table`` and ``tables``.
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
    """Return the split that a keyspace should begin; None if the load is within ``limits``, or no group can be split.

    ``leaves`` maps each unsplit group of the keyspace to its load in deliveries per second.
    """
    if sum(leaves.values()) <= limits.overload * limits.capacity:
        return None
    hottest = max((group for group in leaves if group.depth < group.bits), key=leaves.__getitem__, default=None)
    return SplitGroup(keyspace, hottest) if hottest else None


def choose_merge(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], pairs: Sequence[SiblingPair], limits: LoadLimits
) -> MergeGroup | None:
    """Return the merge that a keyspace should begin; None if no pair of halves can be merged within ``limits``.

    - ``leaves``: maps each unsplit group of the keyspace to its long-term load.
    - ``pairs``: the result of :func:`sibling_pairs` for long-term loads.
    """
    most = limits.merge_limit * limits.capacity - sum(leaves.values())
    fitting = (pair for pair in pairs if (0.0 if pair.local else pair.right) <= most)
    coldest = min(fitting, key=lambda pair: pair.left + pair.right, default=None)
    return MergeGroup(keyspace, coldest.group) if coldest else None
