"""Which strategy a directory gets: the paper's rules of thumb (§4.2-4.5, §6.3, §6.4), in order, with their reasons."""

from enum import StrEnum

import msgspec

from service.discovery.partial.cushion import cushion_needed
from service.discovery.partial.formulas import copies_needed, expected_overhead
from service.discovery.partial.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy

MANY_UPDATES = 0.1
"""Updates per lookup above which what an update costs decides, and below which the answers' quality does."""
ROOMY_ENTRIES = 1000
"""So many entries a server keeps at most of a directory that need not grow with h."""


class Measured(msgspec.Struct, frozen=True):
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


class Reason(msgspec.Struct, frozen=True):
    """A rule that decided, the value that it looked at, and the bound that it compared it with."""

    rule: Rule
    value: float
    bound: float


class Choice(msgspec.Struct, frozen=True):
    """A strategy, and why it is that."""

    strategy: Strategy
    reasons: tuple[Reason, ...]


class Chosen(msgspec.Struct, frozen=True):
    """A directory as its coordinator keeps it: its AV-pair, what was measured of it, and what follows from that."""

    pair: str
    measured: Measured
    choice: Choice


def choose(measured: Measured) -> Choice:
    """Return the strategy for a directory. Pure: the same measurements always give the same."""
    copies = copies_needed(measured.target, measured.entries, measured.servers)
    if copies >= measured.servers:
        return Choice(FullReplication(), (Reason(Rule.ALL_NEEDED, copies, measured.servers),))
    cushion = cushion_needed(measured.target, measured.entries)
    share = measured.target + cushion
    spare = Reason(Rule.CUSHION, cushion, measured.target)
    if measured.updates_per_lookup > MANY_UPDATES:
        why = Reason(Rule.MANY_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
        return _for_many_updates(measured, share, copies, why, spare)
    rare = Reason(Rule.FEW_UPDATES, measured.updates_per_lookup, MANY_UPDATES)
    copies = copies_needed(share, measured.entries, measured.servers)
    per_server = copies * measured.entries / measured.servers
    if per_server <= ROOMY_ENTRIES:
        return Choice(RoundRobin(copies), (rare, Reason(Rule.FITS, per_server, ROOMY_ENTRIES), spare))
    return Choice(RandomServer(share), (rare, Reason(Rule.TOO_MANY, per_server, ROOMY_ENTRIES), spare))


def _for_many_updates(measured: Measured, share: int, copies: int, why: Reason, spare: Reason) -> Choice:
    fixed = expected_overhead(Fixed(share), measured.entries, measured.servers)
    hashed = expected_overhead(Hash(copies), measured.entries, measured.servers)
    if fixed < hashed:
        return Choice(Fixed(share), (why, Reason(Rule.FIXED_CHEAPER, fixed, hashed), spare))
    return Choice(Hash(copies), (why, Reason(Rule.HASH_CHEAPER, fixed, hashed)))
