"""The runs of a page of ``docs/experiments``: two processes go through them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Generic, TypeVar

import msgspec

SEEDS = (1, 2, 3, 4, 5)

Setup = TypeVar("Setup")
Outcome = TypeVar("Outcome")


class Job(msgspec.Struct, Generic[Setup], frozen=True):
    """One run of a page."""

    name: str
    setup: Setup
    seed: int = 1


def run_all(
    jobs: Sequence[Job[Setup]], run: Callable[[Setup, int], Outcome], report: Callable[[str], None]
) -> dict[str, list[Outcome]]:
    """Return what all jobs came to, by their names; ``run`` is a function that other processes can import."""
    found: dict[str, list[Outcome]] = {}
    # Forked: a new interpreter would import modules of the current directory.
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        outcomes = pool.map(run, [job.setup for job in jobs], [job.seed for job in jobs])
        for job, outcome in zip(jobs, outcomes, strict=True):
            found.setdefault(job.name, []).append(outcome)
            report(f"{job.name}, seed {job.seed}")
    return found
