"""HTTP statuses and problems of errors."""

import pytest

from service.console.middleware.error_responses import make_problem, status_of
from service.errors import BadUrl, CoronetError, NotSubscribed, StaleVersion, StoreUnavailable, TlsFailed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadUrl("x"), 422),
        (NotSubscribed("x"), 404),
        (TlsFailed("x"), 502),
        (StoreUnavailable("x"), 503),
        (StaleVersion("x"), 503),
        (CoronetError("x"), 500),
    ],
)
def test_each_branch_of_the_error_tree_has_a_status(error: CoronetError, status: int) -> None:
    assert status_of(error) == status


def test_a_problem_without_a_code_is_named_after_its_status() -> None:
    assert make_problem(404, "Gone.").code == "not-found"
