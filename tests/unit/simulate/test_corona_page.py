"""The page and the plots of the experiment ``corona``, from runs at a small scale."""

from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from service.simulate import corona_report
from service.simulate.corona import Outcome, run
from service.simulate.corona_jobs import JOBS, OURS, PAPERS, SIXTY, command
from service.simulate.corona_page import Found, page
from service.simulate.workload import Setup

SMALL: dict[str, Any] = {"nodes": 8, "channels": 60, "subscriptions": 600, "rounds": 2}


@pytest.fixture(scope="module")
def found() -> Found:
    """All runs of the page, small ones."""
    runs: Found = {}
    known: dict[tuple[Setup, int], Outcome] = {}
    for job in JOBS:
        setup = msgspec.structs.replace(job.setup, **SMALL, maintenance_s=3600.0)
        if (setup, job.seed) not in known:
            known[setup, job.seed] = run(setup, job.seed, lambda _what: None)
        runs.setdefault(job.name, []).append(known[setup, job.seed])
    return runs


def test_the_page_has_every_run_with_its_command(found: Found) -> None:
    text = page(found)
    for name in found:
        assert f"\n| {name}" in text
        assert f"\n- {name}: `coronet simulate corona" in text
    assert "| Lite | 53 @ 48.97 |" in text


def test_the_papers_figures_are_drawn(found: Found, tmp_path: Path) -> None:
    corona_report.plot(found, tmp_path / "all.png")
    corona_report.plot_runs(found["our lite"][:1], tmp_path / "one.png")
    assert (tmp_path / "all.png").stat().st_size > (tmp_path / "one.png").stat().st_size > 10_000


def test_the_table_shows_each_run_in_a_column(found: Found) -> None:
    assert len(corona_report.table(found["our lite"]).columns) == 1 + 5


def test_everything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: Found) -> None:
    monkeypatch.setattr("service.simulate.jobs.ProcessPoolExecutor", _Here)
    by_setup = {(job.setup, job.seed): found[job.name][0] for job in JOBS}
    monkeypatch.setattr(corona_report, "_outcome", lambda setup, seed: by_setup[setup, seed])
    done: list[str] = []
    corona_report.write(tmp_path, done.append)
    assert len(done) == corona_report.STEPS
    assert {path.name for path in tmp_path.iterdir()} == {"corona.md", "corona.png"}


class _Here:
    """A pool without processes."""

    def __init__(self, *_options: object) -> None:
        self.map = map

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass


@pytest.mark.parametrize(
    ("setup", "options"),
    [
        (OURS, ""),
        (PAPERS, " --base 16 --ids random --bins 16"),
        (
            msgspec.structs.replace(OURS, **SIXTY),
            " --nodes 60 --channels 7500 --subscriptions 150000 --maintenance 1800.0",
        ),
    ],
    ids=["ours", "the paper's", "60 nodes"],
)
def test_a_command_names_what_is_not_usual(setup: Setup, options: str) -> None:
    assert command(setup) == f"coronet simulate corona{options}"
