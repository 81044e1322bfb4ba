"""Loads of key groups, in deliveries per second, and the choice of groups to split and merge (CLASH §VI.A).

An overloaded keyspace splits its hottest group. A keyspace with spare capacity merges the two halves of a group: the
coldest pair whose load it can carry.

Hysteresis: a split is due if a keyspace's load exceeds ``overload``. A merge is due only if the keyspace's load stays
below ``merge_limit`` with the merged group. A load that fluctuates by less than ±x never causes a split after a merge
if ``merge_limit < overload · (1 - x) / (1 + x)``.

Deviation: the paper merges where a server's load is below 54 %. But two halves of 55 and 30 % do not need two servers,
and a server below 54 % may not have the capacity for the other half: the criterion here is the load after the merge.
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
    """Return the load of a group, in deliveries per second, from its deliveries and its number of subscriptions.

    A delivery reads each subscription once, so the work is linear in deliveries. The number of stored subscriptions
    adds a second, smaller term, which splits large groups even while they are quiet. Deviation: the paper's load is
    logarithmic in the number of stored queries (§VI.A), because its servers match data against an index of queries;
    here a delivery reads all subscriptions.
    """
    return deliveries_per_s + subscriptions / SUBSCRIPTIONS_PER_DELIVERY_S


class HalfLives(msgspec.Struct, frozen=True):
    """Half-lives in seconds of a group's two delivery rates, the *current* and the *long-term* rate.

    After a half-life without deliveries, a rate has decayed to a half. Deviation: the paper considers the last interval
    only. Here a group counts as hot at once but as cold only after a while. Updates come in bursts, and a group that
    has just split would otherwise merge again between two bursts.
    """

    current_s: float
    long_term_s: float

    @classmethod
    def for_interval(cls, interval_s: float) -> "HalfLives":
        """Return the half-lives for rates that are measured every ``interval_s`` seconds.

        A delivery to a large channel takes several intervals, but reaches a given leaf group in only one of them. About
        three intervals are therefore needed to measure a rate.
        """
        return cls(3 * interval_s, 15 * interval_s)

    def remaining_shares(self, age_s: float) -> tuple[float, float]:
        """Return (current, long-term): the share of each rate that remains after ``age_s`` seconds."""
        age_s = max(age_s, 0.0)
        return 0.5 ** (age_s / self.current_s), 0.5 ** (age_s / self.long_term_s)


class DeliveryRate(msgspec.Struct, frozen=True):
    """Deliveries per second, as two exponentially decaying means with the half-lives of :class:`HalfLives`.

    Rates of several prefixes, or of parts of a prefix, can be added.
    """

    current: float = 0.0
    long_term: float = 0.0

    def after(self, age_s: float, half_lives: HalfLives) -> "DeliveryRate":
        """Return the rate after ``age_s`` seconds without deliveries.

        A negative age, which occurs when a clock was set back, counts as zero.
        """
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

    ``rates`` has the delivery rate of each prefix in the keyspace. ``moving`` has the rates of the prefixes that move
    with the group. ``staying`` has the new rate of each other prefix whose rate changes. If the new rate is 0, the
    prefix is to be removed.

    If a prefix contains the group, its rate is divided: the group's share moves, and the rest is divided among the
    prefixes that remain of the prefix without the group.
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
    """Return the load of each leaf group of a keyspace in deliveries per second.

    ``sizes`` has each leaf group's number of subscriptions, and ``rates`` the delivery rates of prefixes. A prefix is
    usually a part of a leaf group, such as a channel, so that its rate can still be assigned after the leaf has split.
    The rate of a prefix that contains several leaves is divided among these in proportion to their numbers of keys.
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


LoadsByKeyspace = Mapping[Keyspace, Mapping[KeyGroup, float]]
"""Loads of the leaves of several keyspaces."""


class LoadLimits(msgspec.Struct, frozen=True):
    """Thresholds of a keyspace's load, as shares of ``capacity`` (deliveries per second).

    A keyspace whose load is above ``overload`` splits a group. A merge must leave its load below ``merge_limit``. Even
    if deliveries are steady, measured loads fluctuate by about 12 %, because deliveries come in bursts.
    """

    capacity: float
    overload: float = 0.90
    merge_limit: float = 0.70


class SiblingPair(msgspec.Struct, frozen=True):
    """A group whose two halves are both leaves, that is, not split.

    ``left`` and ``right`` are the loads of the halves in deliveries per second. ``local`` states whether both halves
    are in the same keyspace.
    """

    group: KeyGroup
    left: float
    right: float
    local: bool


def sibling_pairs(
    table: ServerTable, tables: Mapping[Keyspace, ServerTable] | Sequence[ServerTable], loads: LoadsByKeyspace
) -> list[SiblingPair]:
    """Return the groups of a keyspace whose halves could be merged: both halves are leaves with all their records.

    Args:
        table: The table of the keyspace.
        tables: The tables of the keyspaces in which the right halves are.
        loads: The loads of the leaves of these keyspaces, including the keyspace of ``table``.
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
    """Return the split that a keyspace should begin; None if its load is not above the limit, or no leaf can be split.

    ``leaves`` has the load of each leaf group of the keyspace in deliveries per second.
    """
    if sum(leaves.values()) <= limits.overload * limits.capacity:
        return None
    hottest = max((group for group in leaves if group.depth < group.bits), key=leaves.__getitem__, default=None)
    return SplitGroup(keyspace, hottest) if hottest else None


def choose_merge(
    keyspace: Keyspace, leaves: Mapping[KeyGroup, float], pairs: Sequence[SiblingPair], limits: LoadLimits
) -> MergeGroup | None:
    """Return the merge that a keyspace should begin; None if no merge leaves its load within ``limits``.

    ``leaves`` has the long-term load of each leaf group of the keyspace, and ``pairs`` is the result of
    :func:`sibling_pairs` for long-term loads.
    """
    most = limits.merge_limit * limits.capacity - sum(leaves.values())
    fitting = (pair for pair in pairs if (0.0 if pair.local else pair.right) <= most)
    coldest = min(fitting, key=lambda pair: pair.left + pair.right, default=None)
    return MergeGroup(keyspace, coldest.group) if coldest else None
