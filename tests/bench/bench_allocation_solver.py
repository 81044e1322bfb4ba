"""Time to compute the sizes of a million channels with individual costs, compared with sorting them once.

Run it alone on the machine: ``python -m tests.bench.bench_allocation_solver [--channels N]``. Prints JSON: for each
algorithm the median time in seconds (``s``) and its multiple of a numpy sort of the same weights in the same round
(``sorts``); the relative deviation of clusters from the optimum (``clusters_off``) and their size in bytes; and the
maximum memory of the process, channels included.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from service.corona.optimizer.allocation_solver import apply_site_scales, load, scale_for_budget, scale_for_delay, sizes
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.tradeoff_clusters import encode, summarise
from service.simulate.corona.paper_levels import level_sizes, levels_for_budget
from tests.support.allocation_problems import POLL_INTERVAL_S, delay, heterogeneous

CHANNELS = 1_000_000
ROUNDS = 7
CHANNELS_PER_SITE = 20


def took_s(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def peak_mb() -> float:
    """Return the maximum memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(channels: int) -> None:
    """Solve the same problem with every algorithm and print the results."""
    problem = heterogeneous(channels, seed=1)
    random = np.random.default_rng(2)
    sites = (random.pareto(1.0, channels) * channels / CHANNELS_PER_SITE).astype(np.intp) % (channels // 10)
    site_scales = random.lognormal(0.0, 2.0, channels // 10)
    budget, options = 20 * float(problem.costs.sum()), level_sizes(1024, 16)
    exact: Floats = sizes(problem, scale_for_budget(problem, budget))
    delay_s = delay(problem, exact) / float(problem.weights.sum()) * POLL_INTERVAL_S / 2
    clusters = summarise(problem)
    ways: dict[str, Callable[[], object]] = {
        "budget": lambda: sizes(problem, scale_for_budget(problem, budget)),
        "delay": lambda: sizes(problem, scale_for_delay(problem, delay_s, POLL_INTERVAL_S)),
        "levels": lambda: levels_for_budget(problem, options, budget),
        "sites": lambda: apply_site_scales(problem, site_scales[sites]),
        "summary": lambda: summarise(problem),
        "from_clusters": lambda: clusters.scale_for_budget(budget),
    }
    found: dict[str, object] = {"channels": channels}
    for name, way in ways.items():
        rounds = [(took_s(lambda: np.sort(problem.weights)), took_s(way)) for _ in range(ROUNDS)]
        found[name] = {
            "s": round(median(way_s for _, way_s in rounds), 4),
            "sorts": round(median(way_s / sort_s for sort_s, way_s in rounds), 2),
        }
    approximate = sizes(problem, clusters.scale_for_budget(budget))
    found["clusters_off"] = {
        "delay": float(f"{delay(problem, approximate) / delay(problem, exact) - 1:.2g}"),
        "load": float(f"{load(problem, approximate) / budget - 1:.2g}"),
        "bytes": len(encode(clusters)),
    }
    found["peak_mb"] = round(peak_mb())
    print(json.dumps(found, indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--channels", type=int, default=CHANNELS)
    main(arguments.parse_args().channels)
