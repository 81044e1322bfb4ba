"""Verdicts on the pages of the experiments."""

import pytest

from service.simulate.report import compare


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.5, 0.6], "reproduced"),
        ([0.5, 0.7], "reproduced with 1 of 2 seeds: why"),
        ([0.62, 0.64], "within 5.0%: why"),
        ([0.46, 0.44], "within 10.0%: why"),
        ([2.0, 3.0], "**not reproduced**: why"),
    ],
)
def test_a_verdict_depends_on_the_values_of_all_seeds(values: list[float], verdict: str) -> None:
    assert compare("Fig. 1", "50 to 60 %", values, 0.5, 0.6, why="why").endswith(f" | {verdict} |")


def test_measured_values_show_their_spread() -> None:
    row = "| Fig. 1 | 50 to 60 % | 55% (50% to 60%) | reproduced |"
    assert compare("Fig. 1", "50 to 60 %", [0.5, 0.6], 0, 1, ".0%") == row
