"""The page and plots of the experiment ``corona`` from small runs, and the common report functions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from service.simulate import cli
from service.simulate.corona import report as corona_report
from service.simulate.corona.report import JOBS, OutcomesByName, page
from service.simulate.corona.workload import CoronaSetup
from service.simulate.report import run_all

SMALL: dict[str, Any] = {"nodes": 8, "channels": 60, "subscriptions": 600, "rounds": 2}


@pytest.fixture(scope="module")
def found() -> OutcomesByName:
    """Return small runs for all jobs of the page."""
    runs: OutcomesByName = {}
    known: dict[tuple[object, CoronaSetup, int], Any] = {}
    for job in JOBS:
        setup, seed = job.arguments
        small = msgspec.structs.replace(setup, **SMALL, maintenance_s=3600.0)
        if (job.run, small, seed) not in known:
            known[job.run, small, seed] = job.run(small, seed, lambda _what: None)
        outcome = msgspec.structs.replace(known[job.run, small, seed], setup=setup)
        runs.setdefault(job.name, []).append(outcome)
    return runs


def test_the_page_has_every_run_with_its_command(found: OutcomesByName) -> None:
    text = page(found)
    for name in found:
        assert f"\n| {name}" in text
        assert f"\n- {name}: `coronet simulate corona" in text
    assert "| Lite | 53 @ 48.97 |" in text


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Coronet, lite", ""),
        ("paper mode, lite", " --base 16 --ids random --bins 16"),
        ("Coronet, lite on 60 nodes", " --nodes 60 --channels 7500 --subscriptions 150000 --maintenance 1800.0"),
    ],
    ids=["Coronet", "paper mode", "60 nodes"],
)
def test_a_command_omits_defaults(found: OutcomesByName, name: str, options: str) -> None:
    assert f"- {name}: `coronet simulate corona{options}`\n" in page(found)


def test_the_papers_figures_are_drawn(found: OutcomesByName, tmp_path: Path) -> None:
    corona_report.plot(found, tmp_path / "all.png")
    corona_report.plot_run(found["Coronet, lite"][0], tmp_path / "one.png")
    assert (tmp_path / "all.png").stat().st_size > (tmp_path / "one.png").stat().st_size > 10_000


def test_the_table_shows_a_run(found: OutcomesByName) -> None:
    assert len(corona_report.table(found["Coronet, lite"][0]).columns) == 2
    assert len(corona_report.table(found["protocol"][0]).columns) == 3


def test_the_page_states_where_a_run_exceeds_the_products_limit(found: OutcomesByName) -> None:
    outcome = found["Coronet, lite"][0]
    polite = msgspec.structs.replace(
        outcome, profile=tuple(msgspec.structs.replace(each, polls_per_tau=0.1) for each in outcome.profile)
    )
    greedy = msgspec.structs.replace(
        outcome, profile=tuple(msgspec.structs.replace(each, polls_per_tau=1e4) for each in outcome.profile)
    )
    assert corona_report.share_above_limit(polite) == 0.0
    assert corona_report.share_above_limit(greedy) == 1.0


def test_page_and_plot_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: OutcomesByName) -> None:
    monkeypatch.setattr("service.simulate.cli.run_all", lambda _jobs, _report: found)
    cli.run(["report", "--only", "corona", "--directory", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"corona.md", "corona.png"}
    assert (tmp_path / "corona.md").read_text() == page(found)


def test_jobs_are_run_and_reported_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.simulate.report.ProcessPoolExecutor", _Here)

    def ran(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> tuple[CoronaSetup, int]:
        report("a step, which a page does not report")
        return setup, seed

    done: list[str] = []
    outcomes = run_all([job._replace(run=ran) for job in JOBS], done.append)
    assert len(done) == len(JOBS)
    assert done[:2] == ["protocol, churn, seed 1", "protocol, seed 1"]
    assert [each for found in outcomes.values() for each in found] == [job.arguments for job in JOBS]


class _Here:
    """A process pool that runs jobs in this process."""

    def __init__(self, *_options: object) -> None:
        self.map = map

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass
