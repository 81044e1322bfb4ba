"""The experiment ``corona`` with the production protocol, at a small scale: 12 nodes, 150 channels."""

from functools import cache

import pytest

from service.corona.fleet_policy import Goal
from service.simulate.corona.protocol_experiment import ProtocolOutcome, run
from service.simulate.corona.workload import CoronaSetup

CALM = CoronaSetup(nodes=12, channels=150, subscriptions=750)
FAULTY = CoronaSetup(nodes=12, channels=150, subscriptions=750, churn=0.2, loss=0.02)


@cache
def _run(setup: CoronaSetup, seed: int = 1) -> ProtocolOutcome:
    return run(setup, seed, lambda _what: None)


def test_load_and_delay_agree_with_the_vectorised_run() -> None:
    outcome = _run(CALM)
    assert outcome.load_ratio == pytest.approx(1.0, abs=0.01)
    assert outcome.detection_ratio == pytest.approx(1.0, abs=0.03)


def test_the_detection_delay_matches_the_formula() -> None:
    outcome = _run(CALM)
    assert outcome.mean_detection_s == pytest.approx(outcome.formula_detection_s, rel=0.03)


def test_the_goal_fast_reaches_its_target_with_the_load_of_the_vectorised_run() -> None:
    outcome = _run(CoronaSetup(nodes=12, channels=150, subscriptions=750, goal=Goal.FAST, target_delay_s=200.0))
    assert outcome.mean_detection_s == pytest.approx(200.0, rel=0.03)
    assert outcome.load_ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("setup", [CALM, FAULTY])
def test_every_entry_gets_a_version(setup: CoronaSetup) -> None:
    outcome = _run(setup)
    assert 0 < outcome.updates == outcome.versioned_updates


def test_churn_and_loss_cost_little() -> None:
    outcome = _run(FAULTY)
    assert outcome.mean_detection_s <= 1.15 * _run(CALM).mean_detection_s
    assert outcome.polls_per_channel_per_tau <= 1.03 * _run(CALM).polls_per_channel_per_tau


def test_the_same_seed_gives_the_same_result() -> None:
    assert run(CALM, 1, lambda _what: None) == _run(CALM)
