"""The default policy, and the limits on polls of public channels."""

import pytest

from service.corona.fleet_policy import DEFAULT_POLICY
from service.settings import Settings


def test_the_default_settings_make_the_default_policy() -> None:
    assert Settings().policy() == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("subscribers", "per_hour"), [(0, 4.0), (1, 4.0), (10, 12.65), (100, 40.0), (900, 120.0), (10**9, 120.0)]
)
def test_polls_of_a_public_channel_grow_with_its_subscribers(subscribers: int, per_hour: float) -> None:
    assert DEFAULT_POLICY.most_polls_per_hour(subscribers) == pytest.approx(per_hour, rel=1e-3)
