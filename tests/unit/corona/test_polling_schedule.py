import numpy as np
import pytest

from service.corona.polling_schedule import PollingSchedule, new_schedule, revised_schedule

FIRST = "0" * 40
MIDDLE = "0" * 6 + "8" + "0" * 33


def test_ranks_poll_one_after_another() -> None:
    schedule = new_schedule(FIRST, 3, 3, poll_interval_s=900, now_s=9001)
    assert [schedule.next_poll_s(rank, 9001) for rank in range(3)] == [9300, 9600, 9900]


def test_schedules_of_channels_start_at_different_times() -> None:
    assert new_schedule(MIDDLE, 1, 1, poll_interval_s=900, now_s=9001).first_s == 9450


def test_the_next_poll_is_after_the_current_one() -> None:
    assert PollingSchedule(9000, 300, 3).next_poll_s(0, after_s=9000) == 9900


def test_rounding_does_not_repeat_a_poll() -> None:
    assert PollingSchedule(8.6, 0.1, 1).next_poll_s(0, after_s=8.6) == pytest.approx(8.7)


def test_a_planned_poll_is_moved_forward_but_never_postponed() -> None:
    schedule = PollingSchedule(9000, 300, 3)
    assert revised_schedule(schedule, 1, 1, poll_interval_s=900, now_s=9001) == PollingSchedule(9300, 900, 1)
    assert revised_schedule(schedule, 9, 5, poll_interval_s=900, now_s=9270) == PollingSchedule(9300, 100, 5, 1)
    assert revised_schedule(schedule, 9, 5, poll_interval_s=900, now_s=9075) == PollingSchedule(9075 + 175, 100, 5, 1)


def test_channels_accelerated_together_are_polled_at_different_times() -> None:
    rotas = [
        new_schedule(f"abc{number * 2**32 // 50:037x}", 1, 1, poll_interval_s=1800, now_s=0) for number in range(50)
    ]
    spread_s = np.sort([schedule.first_s for schedule in rotas])
    assert np.diff(spread_s).max() < 1800 / 5
    sped_up = [revised_schedule(schedule, 20, 20, poll_interval_s=1800, now_s=0) for schedule in rotas]
    assert np.diff(np.sort([schedule.first_s % 90 for schedule in sped_up])).max() < 90 / 5
