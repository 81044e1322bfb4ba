"""The runs of the page ``docs/experiments/location.md``: the paper's seven graphs."""

from service.simulate.jobs import Job
from service.simulate.location import Setup

SEEDS = (1, 2, 3, 4, 5, 6, 7)
JOBS = [Job("location", Setup(), seed) for seed in SEEDS]
