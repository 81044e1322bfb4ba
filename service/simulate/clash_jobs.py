"""The runs of the page ``docs/experiments/clash.md``, and the command for each."""

from service.simulate.clash_workload import MapKind, Setup
from service.simulate.jobs import SEEDS, Job

OURS = Setup()
SETUPS = {
    "long streams": OURS,
    "short streams": Setup(stream_packets=50),
    "long streams, queries": Setup(queries=50_000),
    "short streams, queries": Setup(stream_packets=50, queries=50_000),
    "splits above 86 %": Setup(overload=0.86),
    "Chord's map": Setup(map=MapKind.CHORD),
}
"""By what the page calls them."""


JOBS = [Job(name, setup, seed) for name, setup in SETUPS.items() for seed in SEEDS]


def command(setup: Setup) -> str:
    """Return the command that runs this setup."""
    given = [
        ("--stream-packets", setup.stream_packets, OURS.stream_packets),
        ("--queries", setup.queries, OURS.queries),
        ("--overload", setup.overload, OURS.overload),
        ("--map", setup.map, OURS.map),
    ]
    return " ".join(["coronet simulate clash", *(f"{name} {value}" for name, value, usual in given if value != usual)])
