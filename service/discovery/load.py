"""What a cell carries, and what it asks the head for: three thresholds and their low counterparts (§IV.A).

A rate is that of the last ``WINDOW`` events, as the paper's nodes measure it (§V.A).
"""

from enum import StrEnum

import msgspec

WINDOW = 20
"""Events, registrations or queries, by which a rate is told."""


class Load(msgspec.Struct, frozen=True):
    """What one cell carries, of its own pair."""

    names: int = 0
    registrations_s: float = 0.0
    queries_s: float = 0.0


class Limits(msgspec.Struct, frozen=True):
    """What one cell is to carry at most (T_CN, T_reg, T_q), and how large a matrix may become.

    A cell below the share ``low`` of its thresholds is one too many: with at most a half, what merges two cells leaves
    room before the next growth.
    """

    names: int = 4000
    registrations_s: float = 50.0
    queries_s: float = 200.0
    low: float = 0.25
    partitions: int = 256
    replicas: int = 64


class Kind(StrEnum):
    """What a cell asks for: more or fewer partitions or replicas."""

    INC_P = "INC_P"
    DEC_P = "DEC_P"
    INC_R = "INC_R"
    DEC_R = "DEC_R"


def rate_per_s(events: int, since_s: float) -> float:
    """Return the rate of the last events, the first of them so long ago; fewer than ``WINDOW`` tell none."""
    return events / since_s if events >= WINDOW and since_s > 0 else 0.0


def share(load: Load, limits: Limits) -> float:
    """Return how much of what a cell may carry in names and registrations it does carry."""
    return max(load.names / limits.names, load.registrations_s / limits.registrations_s)


def wanted(load: Load, limits: Limits) -> tuple[Kind, ...]:
    """Return what a cell under this load asks for.

    We deviate: a partition is one too many if *both* its rate and its names are low (§IV.C.2 says either). A partition
    full of names that nobody registers any more would otherwise be merged with a full one.
    """
    kinds = []
    if load.names >= limits.names or load.registrations_s >= limits.registrations_s:
        kinds.append(Kind.INC_P)
    elif load.names < limits.low * limits.names and load.registrations_s < limits.low * limits.registrations_s:
        kinds.append(Kind.DEC_P)
    if load.queries_s >= limits.queries_s:
        kinds.append(Kind.INC_R)
    elif load.queries_s < limits.low * limits.queries_s:
        kinds.append(Kind.DEC_R)
    return tuple(kinds)
