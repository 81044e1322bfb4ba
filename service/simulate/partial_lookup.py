"""Experiment ``partial-lookup`` (Sun and Garcia-Molina, §4 and §6): 100 entries on 10 servers, five strategies.

Production's are the servers, their messages, the client's order of asking, the metrics, the formulas and the cushion.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from service.simulate import partial_lookup_static as static
from service.simulate import partial_lookup_updates as updates
from service.simulate.partial_lookup_stars import Column, table_2

STEPS = 3


class Outcome(msgspec.Struct, frozen=True):
    """What ``coronet simulate partial-lookup --json`` prints."""

    experiment: str
    seed: int
    static: static.Static
    updates: updates.Updates
    table_2: tuple[Column, ...]


def run(seed: int, report: Callable[[str], None]) -> Outcome:
    """Run all figures with one seed; report after each part."""
    placing, updating, rating = np.random.default_rng(seed).spawn(3)
    placed = static.run(placing)
    report("placements")
    updated = updates.run(updating)
    report("updates")
    rated = table_2(placed, updated, rating)
    report("Table 2")
    return Outcome("partial-lookup", seed, placed, updated, rated)
