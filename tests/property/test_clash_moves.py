"""Key groups split and merge during subscriptions, deletions and fan-outs, and balancers fail at any step."""

from random import Random

import pytest
from hypothesis import settings

from tests.support.keyspace_histories import Moves, run_history

BLOCKS, HISTORIES_PER_BLOCK = 50, 300
blocks = pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.storms) for block in range(2, BLOCKS))]
)
"""Six hundred histories with every run of the tests, fifteen thousand with ``make storms``."""


@blocks
def test_random_histories_keep_all_invariants(block: int) -> None:
    """The rules of the state machine, drawn evenly: past errors required a dozen rules in a row, and long histories."""
    for seed in range(block * HISTORIES_PER_BLOCK, (block + 1) * HISTORIES_PER_BLOCK):
        run_history(Moves(), Random(seed))  # noqa: S311 - repeatable, not secret


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=60, stateful_step_count=80, deadline=None)
