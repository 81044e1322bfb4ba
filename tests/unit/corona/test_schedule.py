import pytest

from service.corona.schedule import effective_interval_s, next_poll_s

FIRST = "0" * 40
MIDDLE = "8" + "0" * 39


def test_ranks_poll_one_after_another_within_the_interval() -> None:
    assert [next_poll_s(FIRST, rank, 3, 900, after_s=9001) for rank in range(3)] == [9900, 9300, 9600]


def test_channels_have_different_offsets() -> None:
    assert next_poll_s(MIDDLE, 0, 1, 900, after_s=9001) == 9450


def test_the_next_poll_is_after_the_present_one() -> None:
    assert next_poll_s(FIRST, 0, 1, 900, after_s=9000) == 9900


def test_rounding_does_not_repeat_a_poll() -> None:
    assert next_poll_s(FIRST, 0, 6, 0.1, after_s=8.6) == pytest.approx(8.7)


def test_a_planned_poll_is_brought_forward_but_not_put_off() -> None:
    assert next_poll_s(FIRST, 1, 3, 900, after_s=9001, planned_s=9100) == 9100
    assert next_poll_s(FIRST, 1, 3, 900, after_s=9001, planned_s=9450) == 9300


@pytest.mark.parametrize(
    ("size", "interval_s"),
    [(1, 600), (2, 600), (3, 900), (12, 3600)],
)
def test_a_public_channel_is_not_polled_more_often_than_allowed(size: int, interval_s: float) -> None:
    assert effective_interval_s(600, size, max_polls_per_hour=12, private=False) == interval_s


def test_a_private_channel_is_polled_as_often_as_set() -> None:
    assert effective_interval_s(1, 12, max_polls_per_hour=12, private=True) == 1
