"""The choice of a strategy for storing a directory on servers, and the coordinator that updates these servers.

A *strategy* is one of the paper's ways of distributing the entries. It is chosen by the paper's rules of thumb (Sun &
Garcia-Molina §4.2-4.5, §6.3, §6.4). The rules are applied one after another, and recorded as the reasons for the
choice.

A directory's *coordinator* works as follows:

1. It periodically reads all names with the directory's attribute-value pair. These names are the directory's entries.
2. It sends the servers the changes since the previous reading. It therefore adds only absent entries and deletes only
   present ones, as all strategies require. Each added or deleted entry counts as one update, as in the paper.
3. If another strategy is needed or a server has lost its entries, it *places* the directory: it sends all entries
   again.
"""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from service.discovery.partial_lookup.servers import Add, Delete, Place, Request
from service.discovery.partial_lookup.strategies import (
    Fixed,
    FullReplication,
    Hash,
    RandomServer,
    RoundRobin,
    Strategy,
    copies_needed,
    cushion_needed,
    expected_overhead,
)

MIN_ENTRIES = 500
"""Minimum number of names for an AV-pair to get a directory. Fewer names are found at less cost in its matrix."""
MANY_UPDATES = 0.1
"""Number of updates per lookup up to which a strategy is chosen by the quality of its answers.

Above this number, a strategy is chosen by the cost of updates.
"""
MAX_SHARE_ENTRIES = 1000
"""Maximum number of entries per server with Round-Robin-y. If it is exceeded, RandomServer-x is used instead."""


class DirectoryMeasurements(msgspec.Struct, frozen=True):
    """Measurements of a directory, from which the strategy for distributing its entries over servers is chosen.

    - ``target``: the number of entries that a lookup requests.
    - ``entries``: the number of entries in the directory.
    - ``servers``: the number of servers.
    - ``updates_per_lookup``: the number of adds and deletes divided by the number of lookups.
    """

    target: int
    """t: the number of entries that lookups request."""
    entries: int
    """h: the number of entries."""
    servers: int
    """n: the number of servers."""
    updates_per_lookup: float


class Rule(StrEnum):
    """A rule of thumb from the paper for choosing a strategy."""

    ALL_NEEDED = "all-needed"
    """Full replication is chosen, because lookups request so many entries that each server must store all of them."""
    FEW_UPDATES = "few-updates"
    """Updates are rare: the choice is between RandomServer-x and Round-Robin-y, which have fairer, cheaper lookups."""
    MANY_UPDATES = "many-updates"
    """Updates are frequent: the choice is between Fixed-x and Hash-y, which need fewer messages per update."""
    FITS = "fits"
    """Round-Robin-y is chosen, because it covers all entries, is fair, and gives no server too many entries."""
    TOO_MANY = "too-many"
    """RandomServer-x is chosen, because Round-Robin-y would store too many entries on each server."""
    FIXED_CHEAPER = "fixed-cheaper"
    """Fixed-x is chosen, because its updates need fewer messages on average than those of Hash-y."""
    HASH_CHEAPER = "hash-cheaper"
    """Hash-y is chosen, because its updates need at most as many messages on average as those of Fixed-x."""
    CUSHION = "cushion"
    """Servers store a few more entries than a lookup requests, so that deletes do not make lookups fail."""


class ChoiceReason(msgspec.Struct, frozen=True):
    """A rule of thumb that contributed to the choice of a strategy.

    ``value`` and ``bound`` are the two numbers that the rule compares, such as the updates per lookup and their limit.
    """

    rule: Rule
    value: float
    bound: float


class StrategyChoice(msgspec.Struct, frozen=True):
    """A strategy, together with the reasons for choosing it."""

    strategy: Strategy
    reasons: tuple[ChoiceReason, ...]


class DirectoryChoice(msgspec.Struct, frozen=True):
    """The measurements of a directory, and the strategy that its coordinator has chosen from them.

    ``pair`` is the attribute-value pair whose names are the directory's entries.
    """

    pair: str
    measured: DirectoryMeasurements
    choice: StrategyChoice


def choose(measured: DirectoryMeasurements) -> StrategyChoice:
    """Choose a strategy for a directory from its measurements; return the strategy with the reasons."""
    copies = copies_needed(measured.target, measured.entries, measured.servers)
    if copies >= measured.servers:
        return StrategyChoice(FullReplication(), (ChoiceReason(Rule.ALL_NEEDED, copies, measured.servers),))
    cushion = cushion_needed(measured.target, measured.entries)
    share = measured.target + cushion
    cushion_reason = ChoiceReason(Rule.CUSHION, cushion, measured.target)
    if measured.updates_per_lookup > MANY_UPDATES:
        why = ChoiceReason(Rule.MANY_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
        return _for_many_updates(measured, share, copies, why, cushion_reason)
    rare = ChoiceReason(Rule.FEW_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
    copies = copies_needed(share, measured.entries, measured.servers)
    per_server = copies * measured.entries / measured.servers
    if per_server <= MAX_SHARE_ENTRIES:
        return StrategyChoice(
            RoundRobin(copies), (rare, ChoiceReason(Rule.FITS, per_server, MAX_SHARE_ENTRIES), cushion_reason)
        )
    return StrategyChoice(
        RandomServer(share), (rare, ChoiceReason(Rule.TOO_MANY, per_server, MAX_SHARE_ENTRIES), cushion_reason)
    )


def _for_many_updates(
    measured: DirectoryMeasurements, share: int, copies: int, why: ChoiceReason, cushion_reason: ChoiceReason
) -> StrategyChoice:
    fixed = expected_overhead(Fixed(share), measured.entries, measured.servers)
    hashed = expected_overhead(Hash(copies), measured.entries, measured.servers)
    if fixed < hashed:
        return StrategyChoice(Fixed(share), (why, ChoiceReason(Rule.FIXED_CHEAPER, fixed, hashed), cushion_reason))
    return StrategyChoice(Hash(copies), (why, ChoiceReason(Rule.HASH_CHEAPER, fixed, hashed)))


FORGETTING = 0.8
"""Factor by which the counts of earlier lookups and updates are multiplied at each reading of the directory's names."""
STEADY_READINGS = 3
"""Number of successive readings that must choose another kind of strategy before the directory changes to it."""
MAX_EXCESS = 2
"""Maximum ratio of the parameter (x or y) of the strategy in use to the value that the measurements require.

Above this ratio, all entries are sent to the servers again, with the required value.
"""


class Coordinator:
    """The coordinator of one directory, which chooses the strategy and computes the updates to send to the servers.

    It runs on one node. When the set of servers changes, a new coordinator replaces it.
    """

    def __init__(self, servers: int) -> None:
        """Create a coordinator for ``servers`` servers, which store nothing yet."""
        self.choice: StrategyChoice | None = None
        """The current strategy and its reasons; None before the first reading."""
        self.measured: DirectoryMeasurements | None = None
        """The measurements at the last reading."""
        self.placed = 0
        """Number of placements so far."""
        self.is_placement_due = False
        """Whether the next update places all entries again, for example because a server has lost its share."""
        self._servers = servers
        self._entries: dict[str, None] = {}
        self._lookups = 0.0
        self._updates = 0.0
        self._other_choices = 0
        """Number of successive readings that have chosen another kind of strategy than the one in use."""

    @property
    def entries(self) -> Collection[str]:
        """The entries that were passed to the latest call of :meth:`update`, in the same order."""
        return self._entries.keys()

    def update(self, entries: Collection[str], lookups: float, target: int) -> tuple[StrategyChoice, list[Request]]:
        """Return (the strategy, the requests that change the directory's entries to ``entries``).

        - ``entries``: the new entries, best first. If all entries are placed anew with the strategy Fixed-x, only
          the first x of them are stored.
        - ``lookups``: the number of lookups since the previous call.
        - ``target``: the largest number of entries that one of these lookups requested.

        The requests either add and delete single entries, or are a single :class:`Place`, which replaces all entries.
        Before sending a :class:`Place`, the caller must start new servers with the returned strategy.
        """
        present = dict.fromkeys(entries)
        deleted = [entry for entry in self._entries if entry not in present]
        added = [entry for entry in present if entry not in self._entries]
        updates = len(deleted) + len(added) if self.choice else 0
        self._entries = present
        self._lookups = FORGETTING * self._lookups + lookups
        self._updates = FORGETTING * self._updates + updates
        rate = self._updates / max(self._lookups, 1.0)
        self.measured = DirectoryMeasurements(target, len(present), self._servers, rate)
        better = choose(self.measured)
        if self.choice is not None and not self._decide_placement(self.choice.strategy, better.strategy):
            return self.choice, [*map(Delete, deleted), *map(Add, added)]
        self.choice, self.is_placement_due, self._other_choices = better, False, 0
        self.placed += 1
        return better, [Place(tuple(present))]

    def _decide_placement(self, present: Strategy, wanted: Strategy) -> bool:
        """Return whether all entries have to be sent to the servers again.

        ``present`` is the strategy in use. ``wanted`` is the strategy that follows from the latest measurements.
        Entries are sent again in each of these cases:

        - A server has lost its entries.
        - In each of the last ``STEADY_READINGS`` calls of this method, ``wanted`` was of another kind than ``present``.
        - The parameter x or y of ``present`` is lower than that of ``wanted``, or more than ``MAX_EXCESS`` times as
          high.
        """
        if type(present) is not type(wanted):
            self._other_choices += 1
            return self.is_placement_due or self._other_choices >= STEADY_READINGS
        self._other_choices = 0
        size, needed = _parameter(present), _parameter(wanted)
        return self.is_placement_due or not needed <= size <= MAX_EXCESS * needed


def _parameter(strategy: Strategy) -> int:
    """Return the parameter x or y of a strategy, or 1 for full replication, which has no parameter."""
    match strategy:
        case Fixed(x) | RandomServer(x):
            return x
        case RoundRobin(y) | Hash(y):
            return y
        case FullReplication():
            return 1
