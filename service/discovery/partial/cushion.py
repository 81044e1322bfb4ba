"""How many entries more than the target a server should have, because some will be deleted (§6.2)."""

FAILING = 0.001
"""The share of the time in which there may be less than the target."""


def failing_share(target: int, cushion: int, entries: int) -> float:
    """Return for which share of the time a share of ``target + cushion`` has less than ``target`` entries.

    Entries come one at a time and live as long as they may; h is constant on average. So a share that is short by
    some is filled by the next add, and of k entries one is deleted k / h times as often as any is added: a birth-death
    chain, of which the lowest states are too low. The paper measures what follows from it.
    """
    most = min(target + cushion, entries)
    weight, weights = 1.0, [1.0]
    for kept in range(most, 0, -1):
        weight *= kept / entries
        weights.append(weight)
    return sum(weights[most - target + 1 :]) / sum(weights) if target <= most else 1.0


def cushion_needed(target: int, entries: int) -> int:
    """Return the least cushion with which lookups fail at most ``FAILING`` of the time; at most h - t."""
    cushion = 0
    while target + cushion < entries and failing_share(target, cushion, entries) > FAILING:
        cushion += 1
    return cushion
