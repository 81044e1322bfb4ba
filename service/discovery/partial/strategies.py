"""The five strategies, as values (§3)."""

from typing import TypeAlias

import msgspec

from service.errors import BadStrategy


class _OfShare(msgspec.Struct, frozen=True, tag=True):
    x: int
    """How many entries a server keeps at most."""

    def __post_init__(self) -> None:
        if self.x < 1:
            raise BadStrategy(f"A server cannot keep {self.x} entries. Take x of 1 or more.")


class _OfCopies(msgspec.Struct, frozen=True, tag=True):
    y: int
    """On how many servers an entry is kept; for Hash-y at most."""

    def __post_init__(self) -> None:
        if self.y < 1:
            raise BadStrategy(f"An entry cannot be kept on {self.y} servers. Take y of 1 or more.")


class FullReplication(msgspec.Struct, frozen=True, tag=True):
    """Every server has every entry."""


class Fixed(_OfShare, frozen=True, tag=True):
    """All servers have the same x entries."""


class RandomServer(_OfShare, frozen=True, tag=True):
    """Each server has x entries of its own choice."""


class RoundRobin(_OfCopies, frozen=True, tag=True):
    """Entry i is on the y servers from the i-th on."""


class Hash(_OfCopies, frozen=True, tag=True):
    """An entry is where its y hashes say."""


Strategy: TypeAlias = FullReplication | Fixed | RandomServer | RoundRobin | Hash


def named(strategy: Strategy) -> str:
    """Return what the paper calls it."""
    match strategy:
        case FullReplication():
            return "full replication"
        case Fixed(x):
            return f"Fixed-{x}"
        case RandomServer(x):
            return f"RandomServer-{x}"
        case RoundRobin(y):
            return f"Round-Robin-{y}"
        case Hash(y):
            return f"Hash-{y}"
