"""The runs of the page ``docs/experiments/location.md``: the paper's seven graphs, static and dynamic by themselves."""

from typing import NamedTuple

from service.simulate.jobs import Job
from service.simulate.location import Setup

SEEDS = (1, 2, 3, 4, 5, 6, 7)


class Half(NamedTuple):
    """The static or the dynamic experiments of a graph: so both processors are in use to the end."""

    setup: Setup
    dynamic: bool


JOBS = [
    Job("dynamic" if dynamic else "static", Half(Setup(), dynamic), seed) for dynamic in (True, False) for seed in SEEDS
]
