"""What the node protocol promises, on hundreds of seeded fleets with every kind of fault."""

from itertools import pairwise

import pytest

from service.overlay.ring import RingView
from tests.support.fleet import POLICY, PROMPT_S, TICK_S, Fleet

STORM_S = 30.0
HEALED_S = STORM_S + POLICY.silence_s + TICK_S + 4 * PROMPT_S
PLAYED_S = HEALED_S + 3 * POLICY.poll_interval_s
SEEDS = range(300)


def _storm(seed: int) -> Fleet:
    """Return a fleet after a storm of joins, crashes, changes of mind, news, loss and delay."""
    fleet = Fleet(seed, channels=6, calm_s=STORM_S)
    for _ in range(fleet.random.randint(1, 5)):
        fleet.join()
    for _ in range(20):
        fleet.after(fleet.random.uniform(0, STORM_S), lambda: _disturb(fleet))
    fleet.run_until(STORM_S)
    if not fleet.alive:
        fleet.join()
    return fleet


def _disturb(fleet: Fleet) -> None:
    channel = fleet.random.choice(list(fleet.channels))
    match fleet.random.choice(("join", "crash", "subscribe", "news", "news")):
        case "join":
            fleet.join()
        case "crash" if fleet.alive:
            fleet.crash(fleet.random.choice(fleet.alive))
        case "subscribe":
            fleet.subscribe(channel, fleet.random.choice((0, 5)))
        case _:
            fleet.channels[channel].published += 1


def _ring(fleet: Fleet) -> RingView:
    assert sorted(worker.me for worker in fleet.alive) == sorted(node.id for node in fleet.view.nodes)
    return fleet.view


def _ranks(fleet: Fleet, channel: str) -> dict[str, int]:
    return {worker.me: worker.phases[channel].rank for worker in fleet.alive if channel in worker.phases}


@pytest.mark.parametrize("block", range(10))
def test_a_fleet_heals_within_three_maintenance_intervals_of_the_last_fault(block: int) -> None:
    """Wanted channels are polled by exactly their sets, ranked 0 to n-1; nobody polls the others; one owner each."""
    for seed in SEEDS[block::10]:
        fleet = _storm(seed)
        fleet.run_until(HEALED_S)
        ring = _ring(fleet)
        for channel, stored in fleet.channels.items():
            members = ring.nearest(channel, POLICY.pollers_per_channel) if stored.subscribers else ()
            assert _ranks(fleet, channel) == {node: rank for rank, node in enumerate(members)}, seed
            owners = [worker.me for worker in fleet.alive if channel in worker.owned]
            assert owners == list(members[:1]), seed


@pytest.mark.parametrize("block", range(10))
def test_whatever_was_published_is_versioned_exactly_once(block: int) -> None:
    for seed in SEEDS[block::10]:
        fleet = _storm(seed)
        fleet.run_until(PLAYED_S)
        for stored in fleet.channels.values():
            contents = [content for version, content in enumerate(stored.versions) if version not in stored.notices]
            assert all(earlier < later for earlier, later in pairwise(contents)), seed
            if stored.subscribers:
                assert stored.versions[-1] == stored.published, seed


def test_after_the_storm_polls_are_evenly_spaced() -> None:
    for seed in SEEDS[:20]:
        fleet = _storm(seed)
        fleet.run_until(PLAYED_S)
        for stored in fleet.channels.values():
            if stored.subscribers:
                size = min(POLICY.pollers_per_channel, len(fleet.alive))
                late = [at_s for at_s in stored.polls_s if at_s > HEALED_S + POLICY.poll_interval_s]
                gaps_s = [b - a for a, b in pairwise(late)]
                expected_s = max(POLICY.poll_interval_s, size * 3600 / POLICY.max_polls_per_hour) / size
                assert gaps_s == pytest.approx([expected_s] * len(gaps_s)), seed
                assert gaps_s, seed
