"""The choice of a directory's strategy, and the coordinator that keeps its servers at what the matrices have.

The choice follows the paper's rules of thumb (§4.2-4.5, §6.3, §6.4), in order, with their reasons.

A coordinator reads its directory now and then, whole, and tells the servers the difference. So entries are always
added and deleted rightly, whatever the strategy. All directories are placed anew every so often, because messages can
be lost.

We deviate: whatever is read is one batch, and one letter takes all of it that a server is told. So what a reading
finds changed counts as one update, whatever it is; and a Round-Robin-y that has to delete is placed anew, which takes
no more letters than one delete does, and needs no order among them.
"""

from collections.abc import Iterable
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
"""Updates per lookup above which what an update costs decides, and below which the answers' quality does."""
MAX_SHARE_ENTRIES = 1000
"""So many entries a server keeps at most of a directory that need not grow with h."""


class DirectoryMeasurements(msgspec.Struct, frozen=True):
    """What is known of a directory."""

    target: int
    """t: how many entries lookups want."""
    entries: int
    """h."""
    servers: int
    """n."""
    updates_per_lookup: float


class Rule(StrEnum):
    """Why: each is one of the paper's sentences."""

    ALL_NEEDED = "all-needed"
    """With t·n/h copies, each server has everything."""
    FEW_UPDATES = "few-updates"
    """Updates are rare: RandomServer-x and Round-Robin-y are fairer, and find more with fewer questions."""
    MANY_UPDATES = "many-updates"
    """Updates are frequent: Fixed-x and Hash-y take fewer messages."""
    FITS = "fits"
    """There is room for all entries on some servers: Round-Robin-y covers all, and is fair."""
    TOO_MANY = "too-many"
    """There is no room that grows with h: RandomServer-x has a bound."""
    FIXED_CHEAPER = "fixed-cheaper"
    """x·n/h is less than y."""
    HASH_CHEAPER = "hash-cheaper"
    """x·n/h is at least y."""
    CUSHION = "cushion"
    """So many entries more than t, for deletes."""


class ChoiceReason(msgspec.Struct, frozen=True):
    """A rule that decided, the value that it looked at, and the bound that it compared it with."""

    rule: Rule
    value: float
    bound: float


class StrategyChoice(msgspec.Struct, frozen=True):
    """A strategy, and why it is that."""

    strategy: Strategy
    reasons: tuple[ChoiceReason, ...]


class DirectoryChoice(msgspec.Struct, frozen=True):
    """A directory as its coordinator keeps it: its AV-pair, what was measured of it, and what follows from that."""

    pair: str
    measured: DirectoryMeasurements
    choice: StrategyChoice


def choose(measured: DirectoryMeasurements) -> StrategyChoice:
    """Return the strategy for a directory. Pure: the same measurements always give the same."""
    copies = copies_needed(measured.target, measured.entries, measured.servers)
    if copies >= measured.servers:
        return StrategyChoice(FullReplication(), (ChoiceReason(Rule.ALL_NEEDED, copies, measured.servers),))
    cushion = cushion_needed(measured.target, measured.entries)
    share = measured.target + cushion
    spare = ChoiceReason(Rule.CUSHION, cushion, measured.target)
    if measured.updates_per_lookup > MANY_UPDATES:
        why = ChoiceReason(Rule.MANY_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
        return _for_many_updates(measured, share, copies, why, spare)
    rare = ChoiceReason(Rule.FEW_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
    copies = copies_needed(share, measured.entries, measured.servers)
    per_server = copies * measured.entries / measured.servers
    if per_server <= MAX_SHARE_ENTRIES:
        return StrategyChoice(RoundRobin(copies), (rare, ChoiceReason(Rule.FITS, per_server, MAX_SHARE_ENTRIES), spare))
    return StrategyChoice(
        RandomServer(share), (rare, ChoiceReason(Rule.TOO_MANY, per_server, MAX_SHARE_ENTRIES), spare)
    )


def _for_many_updates(
    measured: DirectoryMeasurements, share: int, copies: int, why: ChoiceReason, spare: ChoiceReason
) -> StrategyChoice:
    fixed = expected_overhead(Fixed(share), measured.entries, measured.servers)
    hashed = expected_overhead(Hash(copies), measured.entries, measured.servers)
    if fixed < hashed:
        return StrategyChoice(Fixed(share), (why, ChoiceReason(Rule.FIXED_CHEAPER, fixed, hashed), spare))
    return StrategyChoice(Hash(copies), (why, ChoiceReason(Rule.HASH_CHEAPER, fixed, hashed)))


READS_PER_PLACEMENT = 10
"""After so many readings."""


class Coordinator:
    """One directory's, for as long as the servers are the same. Belongs to one node."""

    def __init__(self, servers: int) -> None:
        """Coordinate so many servers."""
        self.choice: StrategyChoice | None = None
        """Which strategy, and why; None before the first reading."""
        self.measured: DirectoryMeasurements | None = None
        """What it was chosen by."""
        self.placed = 0
        """How often all has been placed."""
        self._servers = servers
        self._entries: dict[str, None] = {}
        self._readings = 0

    def read(self, entries: Iterable[str], lookups: float, target: int) -> list[Request]:
        """Return what to do now that the directory has these entries; ``lookups`` and t are those since the last time.

        A :class:`Place` always stands alone, and is for new servers of ``choice``.
        """
        there = dict.fromkeys(entries)
        deleted = [entry for entry in self._entries if entry not in there]
        added = [entry for entry in there if entry not in self._entries]
        updates = int(self.choice is not None and bool(added or deleted))
        due = self._readings % READS_PER_PLACEMENT == 0
        self._readings += 1
        self._entries = there
        if self.choice and not due and not (deleted and isinstance(self.choice.strategy, RoundRobin)):
            return [*map(Delete, deleted), *map(Add, added)]
        self.measured = DirectoryMeasurements(target, len(there), self._servers, updates / max(lookups, 1.0))
        self.choice = choose(self.measured)
        self.placed += 1
        return [Place(tuple(there))]
