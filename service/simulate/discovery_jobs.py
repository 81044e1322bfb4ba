"""The runs of the page ``docs/experiments/discovery.md``."""

from service.simulate.jobs import SEEDS, Job

NAME = "discovery"
JOBS = [Job(NAME, None, seed) for seed in SEEDS]
