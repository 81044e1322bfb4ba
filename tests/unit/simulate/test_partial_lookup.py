"""The experiment ``partial-lookup``: results and reports of a small run."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from service.discovery.partial_lookup.servers import Add
from service.simulate.cli import run
from service.simulate.partial_lookup import placement_experiment, update_experiment
from service.simulate.partial_lookup.default_choice_experiment import run_default_choices
from service.simulate.partial_lookup.experiment import PAPER, PartialLookupOutcome, RatingColumn, rate
from service.simulate.partial_lookup.experiment import run as run_seed
from service.simulate.partial_lookup.report import page
from service.simulate.partial_lookup.update_experiment import Lifetimes, draw_updates


@pytest.fixture(scope="module")
def outcome() -> Iterator[PartialLookupOutcome]:
    """Return a small run; other runs in the test have the same size."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name, value in (
            (placement_experiment, "INSTANCES", 3),
            (placement_experiment, "INSTANCES_PER_POINT", 1),
            (update_experiment, "CUSHIONED_TIME", 3000.0),
            (update_experiment, "AGED_INSTANCES", 1),
            (update_experiment, "UPDATES", 100),
        ):
            patched.setattr(module, name, value)
        yield run_seed(1, lambda _what: None)


def test_exact_results_do_not_depend_on_the_size_of_the_run(outcome: PartialLookupOutcome) -> None:
    text = page({"partial lookup": [outcome], "as shipped": [run_default_choices(1, lambda _what: None)]})
    found = {row.split(" | ")[0].removeprefix("| "): row for row in text.splitlines()}

    def verdict(figure: str) -> str:
        (row,) = (row for name, row in found.items() if name.startswith(figure))
        return row.split(" | ")[-1].removesuffix(" |")

    assert verdict("Fig. 3: share of targets at which Round-Robin-2") == "reproduced"
    assert verdict("Fig. 6: share of targets at which Round-Robin-2") == "reproduced"
    assert verdict("Fig. 8: largest ratio of Fixed-x").startswith("**not reproduced**")
    assert verdict("Fig. 11: numbers of entries at which").startswith("reproduced")


def test_the_page_has_every_figure_and_all_columns_of_table_2(outcome: PartialLookupOutcome) -> None:
    text = page({"partial lookup": [outcome] * 2, "as shipped": [run_default_choices(1, lambda _what: None)]})
    assert all(f"Fig. {number}" in text for number in (3, 5, 6, 8, 9, 10, 11))
    assert all(name in text for name in PAPER)
    assert "{" not in text


def test_the_command_prints_json_and_draws_a_plot(
    outcome: PartialLookupOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    run(["partial-lookup", "--json", "--seed", "1", "--plot", str(tmp_path / "drawn.png")])
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(outcome))
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("lifetimes", list(Lifetimes))
def test_the_number_of_entries_is_steady_for_all_lifetimes(lifetimes: Lifetimes) -> None:
    first, coming = draw_updates(100, 200_000.0, lifetimes, np.random.default_rng(3))
    there, total, before = set(first), 0.0, 0.0
    for at, update in coming:
        total += len(there) * (at - before)
        before = at
        assert (update.entry in there) != isinstance(update, Add)
        there ^= {update.entry}
    assert total / before == pytest.approx(100, rel=0.05)


def test_stars_are_logarithmic_between_best_and_worst() -> None:
    assert rate([1, 2, 4, 8]) == (4, 3, 2, 1)
    assert rate([1, 1.05, 1, 1.01]) == (4, 4, 4, 4)


def test_contradicted_counts_opposite_orders_but_not_ties() -> None:
    assert RatingColumn("", "", (), (4, 3, 2, 2), (3, 4, 1, 2)).contradicted == 1


def test_the_product_chooses_each_strategy_and_its_costs_are_those_of_the_formulas() -> None:
    found = run_default_choices(1, lambda _what: None)
    assert {one.strategy.rsplit("-", 1)[0] for one in found} == {
        "full replication",
        "Round-Robin",
        "RandomServer",
        "Hash",
        "Fixed",
    }
    for one in found:
        assert one.lookup_cost == pytest.approx(one.expected_lookup_cost, rel=0.1)
        assert one.storage == pytest.approx(one.expected_storage, rel=0.02)
        assert one.overhead == pytest.approx(one.expected_overhead, rel=0.3)
