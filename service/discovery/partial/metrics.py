"""The metrics of §4 of a *placement*: servers by entries, true where a server has an entry.

They are exact means over all lookups that clients can make, where the paper draws some; for up to 14 servers. The
sixth metric, update overhead (§6.4), is a count of messages: whoever delivers them counts, a client's as well.
"""

from collections.abc import Collection, Sequence

import numpy as np

from service.discovery.partial.chances import Bools, Floats, Ints, Steps, subsets


def placement(shares: Sequence[Collection[str]], entries: Sequence[str]) -> Bools:
    """Return who has which of these entries; what is no entry is left out."""
    columns = {entry: column for column, entry in enumerate(entries)}
    found = np.zeros((len(shares), len(entries)), dtype=np.bool_)
    for server, share in enumerate(shares):
        found[server, [columns[entry] for entry in share if entry in columns]] = True
    return found


def storage(placed: Bools) -> int:
    """Return how many entries all servers keep together (§4.1)."""
    return int(placed.sum())


def coverage(placed: Bools) -> int:
    """Return how many different entries can be had of all servers together (§4.3)."""
    return int(placed.any(axis=0).sum())


def lookup_costs(placed: Bools, steps: Steps) -> Floats:
    """Return how many servers are asked on average (§4.2), for every target from 0 to the coverage."""
    known = _union_sizes(placed, steps.sets)[steps.before]
    # Asked by all whose target is above what is known before.
    asked = np.bincount(known, weights=steps.chance, minlength=coverage(placed) + 1)
    costs: Floats = np.concatenate(([0.0], np.cumsum(asked)))[: coverage(placed) + 1]
    return costs


def fault_tolerances(placed: Bools) -> Ints:
    """Return how many servers may fail, whichever, before some lookup does (§4.4), for every target from 0 to h.

    With targets above the coverage, lookups fail anyway: -1. The paper has a heuristic here; this goes through all
    sets of servers that can be left.
    """
    servers, entries = placed.shape
    left = subsets(servers)
    known, size = _union_sizes(placed, left), left.sum(axis=1).astype(np.int64)
    # The largest set that has no more than so many entries; one server more, and each set has more.
    largest = np.full(entries + 1, -1, dtype=np.int64)
    np.maximum.at(largest, known, size)
    tolerances = servers - 1 - np.maximum.accumulate(largest)
    return np.concatenate(([servers], tolerances[:-1]))


def retrieval_chances(placed: Bools, target: int, steps: Steps) -> Floats:
    """Return how likely each entry is among those that a lookup returns: p_I(j) of §4.5.

    A lookup that cannot have ``target`` entries returns what there is.
    """
    known = steps.sets @ placed > 0
    missing = (target - known.sum(axis=1))[steps.before]
    taken = missing > 0
    fresh = placed[steps.server[taken]] & ~known[steps.before[taken]]
    share = np.minimum(missing[taken] / np.maximum(fresh.sum(axis=1), 1), 1) * steps.chance[taken]
    chances: Floats = share @ fresh
    return chances


def unfairness(chances: Floats, target: int) -> float:
    """Return how far lookups are from returning every entry as often (formula 1): 0 is fair."""
    ideal = target / len(chances)
    return float(np.sqrt(np.mean((chances - ideal) ** 2)) / ideal)


def _union_sizes(placed: Bools, sets: Floats) -> Ints:
    sizes: Ints = (sets @ placed > 0).sum(axis=1)
    return sizes
