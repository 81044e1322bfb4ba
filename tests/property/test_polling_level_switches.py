"""A fleet of eight nodes whose policy switches between polling levels while it polls.

No poll is skipped or doubled, and the budget holds.
"""

from itertools import pairwise

import msgspec
import pytest

from service.corona.fleet_policy import FleetObjective, Goal, Levels
from tests.support.fleet import POLICY, Fleet

NODES, CHANNELS = 8, 40
BUDGET = FleetObjective(goal=Goal.LITE, demand_factor=1e3, budget_polls_per_minute=550.0)
SETTLED_S = 4 * POLICY.maintenance_interval_s
PHASES = (Levels.CONTINUOUS, Levels.BASE_2, Levels.CONTINUOUS, Levels.BASE_16, Levels.BASE_4, Levels.CONTINUOUS)
PHASE_S = 48.0


def _run(seed: int) -> tuple[Fleet, list[dict[str, float]]]:
    """Return the fleet after all phases, and each channel's gaps between polls at the end of each phase."""
    fleet = Fleet(seed, channels=CHANNELS, objective=BUDGET)
    for number, stored in enumerate(fleet.channels.values()):
        stored.subscribers = 1 + 30 // (number + 1)
    for _ in range(NODES):
        fleet.join()
    fleet.run_until(SETTLED_S)
    gaps_s = []
    for number, levels in enumerate(PHASES):
        fleet.objective = msgspec.structs.replace(BUDGET, levels=levels)
        fleet.run_until(SETTLED_S + (number + 1) * PHASE_S)
        gaps_s.append(
            {
                channel: worker.instructions[channel].schedule.gap_s
                for worker in fleet.alive
                for channel in worker.instructions
            }
        )
        if levels.are_whole:
            sets = {
                channel: sum(channel in worker.instructions for worker in fleet.alive) for channel in fleet.channels
            }
            assert set(sets.values()) <= {max(1, NODES // levels.base**level) for level in range(4)}
    return fleet, gaps_s


@pytest.mark.parametrize("seed", range(4))
def test_a_switch_of_levels_skips_and_doubles_no_poll_and_keeps_the_budget(seed: int) -> None:
    fleet, gaps_s = _run(seed)
    allowed = BUDGET.budget_polls_per_minute or 0.0
    for number, (before, after) in enumerate(pairwise(gaps_s)):
        begin_s = SETTLED_S + (number + 1) * PHASE_S
        polls = 0
        for channel, polls_s in fleet.polls_s.items():
            # The scale changes a little while nodes learn the new policy one after another.
            shortest_s, longest_s = sorted((before[channel], after[channel]))
            late = [at_s for at_s in polls_s if begin_s - 2 * longest_s <= at_s <= begin_s + PHASE_S]
            found_s = [later - earlier for earlier, later in pairwise(late)]
            assert min(found_s) >= shortest_s * 0.95
            assert max(found_s) <= longest_s * 1.05
            polls += sum(begin_s <= at_s < begin_s + PHASE_S for at_s in polls_s)
        assert polls <= allowed * PHASE_S / 60 * 1.05
        if PHASES[number + 1] is not Levels.BASE_16:  # all eight nodes would exceed the limit of six polls
            assert polls >= allowed * PHASE_S / 60 * 0.9
