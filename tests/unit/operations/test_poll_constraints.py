"""The state of the polling optimum in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.optimizer.poll_explanation import BindingConstraint
from service.operations.poll_constraints import bound_shares, one_bound_warning

counts = st.dictionaries(st.sampled_from(BindingConstraint), st.integers(0, 1_000))


@given(counts)
def test_shares_of_all_channels_add_up_largest_first(channels: dict[BindingConstraint, int]) -> None:
    shares = bound_shares(channels)
    assert sum(shares.values()) == pytest.approx(1.0 if sum(channels.values()) else 0.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


@pytest.mark.parametrize("bound", [bound for bound in BindingConstraint if bound is not BindingConstraint.NONE])
def test_more_than_90_percent_of_the_channels_at_one_limit_cause_a_warning(bound: BindingConstraint) -> None:
    warning = one_bound_warning({bound: 91, BindingConstraint.NONE: 9})
    assert warning.startswith("91 % of the channels have the same limit (")
    assert warning.endswith(".")
    assert one_bound_warning({bound: 90, BindingConstraint.NONE: 10}) == ""


def test_channels_without_a_limit_cause_no_warning() -> None:
    assert one_bound_warning({BindingConstraint.NONE: 100}) == ""
    assert one_bound_warning({}) == ""


def test_fewer_than_ten_channels_at_one_limit_cause_no_warning() -> None:
    assert one_bound_warning({BindingConstraint.NODES: 9}) == ""
    assert one_bound_warning({BindingConstraint.NODES: 10}) != ""
