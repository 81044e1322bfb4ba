"""The choice of a directory's strategy, and the coordinator that keeps its servers equal to the matrices' content.

The choice applies the paper's rules of thumb (§4.2-4.5, §6.3, §6.4) in order, and records them as reasons.

A coordinator reads the whole directory periodically, if it has changed, and sends servers the difference, so adds and
deletes are always correct, whatever the strategy. Every so often it *places* the directory: it sends the servers all
entries again, because messages can be lost.

Deviation: all changes that one reading finds are sent to a server in one letter. They therefore count as one update. A
Round-Robin-y directory is placed again if any entry was deleted, which takes no more letters than one delete does and
requires no order among them.
"""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from service.discovery.partial.servers import Add, Delete, Place, Request
from service.discovery.partial.strategies import (
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

MANY_UPDATES = 0.1
"""Updates per lookup above which the cost of updates decides, and below which the quality of answers does."""
MAX_SHARE_ENTRIES = 1000
"""Maximum entries per server, for strategies whose shares grow with h."""


class DirectoryMeasurements(msgspec.Struct, frozen=True):
    """Measurements of a directory, from which its strategy is chosen.

    ``target`` is the number of entries that a lookup wants, ``entries`` the number of entries, and ``servers`` the
    number of servers. ``updates_per_lookup`` is the number of adds and deletes divided by the number of lookups.
    """

    target: int
    """t: the number of entries that lookups want."""
    entries: int
    """h: the number of entries."""
    servers: int
    """n: the number of servers."""
    updates_per_lookup: float


class Rule(StrEnum):
    """The paper's rules of thumb for the choice of a strategy."""

    ALL_NEEDED = "all-needed"
    """With t·n/h copies, each server has all entries."""
    FEW_UPDATES = "few-updates"
    """Updates are rare: RandomServer-x and Round-Robin-y are fairer and need fewer servers per lookup."""
    MANY_UPDATES = "many-updates"
    """Updates are frequent: Fixed-x and Hash-y need fewer messages."""
    FITS = "fits"
    """The shares are small enough: Round-Robin-y covers all entries and is fair."""
    TOO_MANY = "too-many"
    """The shares would grow too large with h: RandomServer-x bounds them."""
    FIXED_CHEAPER = "fixed-cheaper"
    """x·n/h is less than y."""
    HASH_CHEAPER = "hash-cheaper"
    """x·n/h is at least y."""
    CUSHION = "cushion"
    """The number of entries beyond t, for deletes."""


class ChoiceReason(msgspec.Struct, frozen=True):
    """A rule of thumb that decided the choice of a strategy, because of how ``value`` compares with ``bound``."""

    rule: Rule
    value: float
    bound: float


class StrategyChoice(msgspec.Struct, frozen=True):
    """A strategy and the reasons for it."""

    strategy: Strategy
    reasons: tuple[ChoiceReason, ...]


class DirectoryChoice(msgspec.Struct, frozen=True):
    """The measurements of a directory and the strategy that its coordinator has chosen.

    ``pair`` is the AV-pair whose names are the directory's entries, ``measured`` are the measurements, and ``choice``
    is the strategy that follows from them.
    """

    pair: str
    measured: DirectoryMeasurements
    choice: StrategyChoice


def choose(measured: DirectoryMeasurements) -> StrategyChoice:
    """Return the strategy for a directory with these measurements; equal measurements give equal choices."""
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


UPDATES_PER_PLACEMENT = 10
"""Number of updates after which all entries are placed again."""


class Coordinator:
    """The coordinator of one directory. It runs on one node, and is replaced if the set of servers changes."""

    def __init__(self, servers: int) -> None:
        """Create the coordinator of ``servers`` servers, which store nothing yet."""
        self.choice: StrategyChoice | None = None
        """The current strategy and its reasons; None before the first reading."""
        self.measured: DirectoryMeasurements | None = None
        """The measurements of the current choice."""
        self.placed = 0
        """Number of placements so far."""
        self._servers = servers
        self._entries: dict[str, None] = {}
        self._updates = 0

    @property
    def entries(self) -> Collection[str]:
        """The entries at the last update."""
        return self._entries.keys()

    @property
    def is_placement_due(self) -> bool:
        """Whether the next update places all entries again, even if none has changed."""
        return self._updates % UPDATES_PER_PLACEMENT == 0

    def update(self, entries: Collection[str], lookups: float, target: int) -> list[Request]:
        """Return the requests that make the servers store exactly these entries.

        ``lookups`` is the number of lookups since the last call, and ``target`` the largest number of entries that one
        of them wanted. If the result contains a :class:`Place`, it contains nothing else; the caller then starts new
        servers with the strategy in ``choice`` and sends the request to them.
        """
        due = self.is_placement_due
        self._updates += 1
        if self.choice and not due and entries == self._entries.keys():
            return []
        there = dict.fromkeys(entries)
        deleted = [entry for entry in self._entries if entry not in there]
        added = [entry for entry in there if entry not in self._entries]
        updates = int(self.choice is not None and bool(added or deleted))
        self._entries = there
        if self.choice and not due and not (deleted and isinstance(self.choice.strategy, RoundRobin)):
            return [*map(Delete, deleted), *map(Add, added)]
        self.measured = DirectoryMeasurements(target, len(there), self._servers, updates / max(lookups, 1.0))
        self.choice = choose(self.measured)
        self.placed += 1
        return [Place(tuple(there))]
