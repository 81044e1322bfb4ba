"""The experiment ``schedulers``: it is fair, repeatable, and reports as JSON, table, plot and page."""

import json
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from service.simulate.cli import run as run_command
from service.simulate.schedulers.experiment import STEPS, Comparison, SchedulersSetup, run
from service.simulate.schedulers.reader_schedulers import READERS
from service.simulate.schedulers.report import page, plot, plot_run, table

SMALL = SchedulersSetup(channels=20, weeks=1)


@pytest.fixture(scope="module")
def reports() -> list[str]:
    return []


@pytest.fixture(scope="module")
def comparison(reports: list[str]) -> Comparison:
    return run(SMALL, 3, reports.append)


def test_the_command_prints_the_same_json_for_the_same_seed(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["schedulers", "--json", "--channels", "20", "--weeks", "1", "--seed", "3"])
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(comparison))


def test_corona_uses_as_many_requests_as_each_reader_within_one_percent(comparison: Comparison) -> None:
    for peer in comparison.schedulers:
        for ours in (peer.ours, peer.ours_with_rhythm, peer.known):
            assert ours.requests == pytest.approx(peer.requests, rel=0.01), peer.name
        assert max(peer.as_shipped.requests, peer.known_as_shipped.requests) <= 1.01 * peer.requests


def test_the_json_has_the_documented_fields(comparison: Comparison) -> None:
    found = msgspec.json.decode(msgspec.json.encode(comparison))
    assert found["experiment"] == "schedulers"
    assert [peer["name"] for peer in found["schedulers"]] == list(READERS)
    for peer in found["schedulers"]:
        ours = [peer[name] for name in ("ours", "ours_with_rhythm", "as_shipped", "known", "known_as_shipped")]
        for part in (peer, *ours):
            assert {"requests", "mean_notification_delay_s", "p95", "wasted_share"} <= part.keys()
            assert 0 < part["mean_notification_delay_s"] < part["p95"]
            assert 0 < part["wasted_share"] < 1
        waited = peer["mean_notification_delay_s"] / peer["ours"]["mean_notification_delay_s"]
        assert peer["ours"]["ratio"] == pytest.approx(waited)


def test_the_uniform_schedule_makes_three_polls_in_15_minutes(comparison: Comparison) -> None:
    uniform = comparison.uniform
    assert uniform.requests == pytest.approx(SMALL.channels * 12 * 168, rel=0.01)
    assert uniform.mean_notification_delay_s == pytest.approx(150, rel=0.1)
    assert uniform.as_shipped.requests <= 1.01 * uniform.requests
    assert 0 < uniform.requests_at_equal_delay < uniform.requests


def test_every_run_is_reported(comparison: Comparison, reports: list[str]) -> None:
    assert len(reports) == STEPS
    assert reports[0] == comparison.schedulers[0].name


def test_the_table_fits_a_terminal(comparison: Comparison) -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table(comparison))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert "commafeed" in text


def test_the_page_has_every_reader_and_the_verdicts(comparison: Comparison) -> None:
    groups = {
        "poisson": [comparison] * 2,
        "rhythmic": [comparison],
        "longer": [comparison],
        "other goals": [comparison],
    }
    text = page(groups)
    for name in READERS:
        assert text.count(f"| {name} |") == 7
    assert "at least twice as fast as" in text
    assert "{" not in text


def test_plots_are_drawn(comparison: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot({"poisson": [comparison], "rhythmic": [comparison]}, tmp_path / "page.png")
    plot_run(comparison, tmp_path / "run.png")
    for name in ("page.png", "run.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
