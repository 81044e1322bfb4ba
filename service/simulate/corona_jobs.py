"""The runs of the page ``docs/experiments/corona.md``, and the command for each."""

import msgspec

from service.corona.goals import Goal
from service.simulate.jobs import SEEDS, Job
from service.simulate.workload import Bins, Ids, Phases, Setup

OURS = Setup()
PAPERS = Setup(base=16, ids=Ids.RANDOM, bins=Bins.PAPER)
SIXTY = {"nodes": 60, "channels": 7_500, "subscriptions": 150_000, "maintenance_s": 1800.0, "rounds": 12}


def _with(setup: Setup, **changes: object) -> Setup:
    return msgspec.structs.replace(setup, **changes)


_ROWS = [
    *((f"our {goal}", _with(OURS, goal=goal)) for goal in Goal),
    *((f"paper's {goal}", _with(PAPERS, goal=goal)) for goal in Goal),
    ("our fair, longest wait", _with(OURS, goal=Goal.FAIR, longest_wait_s=120.0)),
    ("our lite on 60 nodes", _with(OURS, **SIXTY)),
    ("paper's lite on 60 nodes", _with(PAPERS, **SIXTY)),
]
"""What is held against the paper, by all seeds."""

JOBS = [
    Job("our lite, churn", _with(OURS, churn=0.05, loss=0.02)),
    *(Job(name, setup, seed) for name, setup in _ROWS for seed in SEEDS),
    Job("paper's lite, random phases", _with(PAPERS, phases=Phases.RANDOM)),
    Job("our lite, random phases", _with(OURS, phases=Phases.RANDOM)),
    Job("our lite, random ids", _with(OURS, ids=Ids.RANDOM)),
    Job("our lite, the paper's bins", _with(OURS, bins=Bins.PAPER)),
    Job("our lite, levels of base 16", _with(OURS, base=16)),
]
"""The longest first: it alone takes as long as six others."""


def command(setup: Setup) -> str:
    """Return the command that runs this setup."""
    given = [
        ("--goal", setup.goal, OURS.goal),
        ("--base", setup.base, OURS.base),
        ("--ids", setup.ids, OURS.ids),
        ("--bins", setup.bins, OURS.bins),
        ("--phases", setup.phases, OURS.phases),
        ("--nodes", setup.nodes, OURS.nodes),
        ("--channels", setup.channels, OURS.channels),
        ("--subscriptions", setup.subscriptions, OURS.subscriptions),
        ("--maintenance", setup.maintenance_s, OURS.maintenance_s),
        ("--longest-wait", setup.longest_wait_s, OURS.longest_wait_s),
        ("--churn", setup.churn, OURS.churn),
    ]
    return " ".join(["coronet simulate corona", *(f"{name} {value}" for name, value, usual in given if value != usual)])
