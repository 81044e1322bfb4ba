"""What of the paper's figures was reached, over all seeds, and what not."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import mean

from service.discovery.partial.strategies import RandomServer, expected_coverage, round_robin_tolerance
from service.simulate.partial_lookup import Outcome
from service.simulate.partial_lookup_static import ENTRIES, FAIR_STORAGE, SERVERS, Curve
from service.simulate.partial_lookup_updates import BREAKS, UPDATED_ENTRIES

ORDER_OF_MAGNITUDE = 10
STEP = 0.5
"""Messages that are a step of Figure 11."""


def over_seeds(curves: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Return curves whose values are means over the seeds, None where one of them has none."""
    found = []
    for seeds in zip(*curves, strict=True):
        points = zip(*(curve.values for curve in seeds), strict=True)
        values = tuple(None if None in point else mean(v for v in point if v is not None) for point in points)
        found.append(Curve(seeds[0].strategy, values))
    return found


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each figure that is to be reached."""
    updates = [outcome.updates for outcome in outcomes]
    return "\n".join(
        [
            *_stored(outcomes),
            *_asked([outcome.static.lookup_costs for outcome in outcomes]),
            _tolerated([outcome.static.fault_tolerances for outcome in outcomes]),
            *_unfair([outcome.static.unfairness for outcome in outcomes]),
            _failing([update.failing for update in updates]),
            _aged([update.aged_unfairness for update in updates]),
            _steps([update.overheads for update in updates]),
        ]
    )


def _stored(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    lines = [line for outcome in outcomes for line in outcome.static.table_1]
    off = max(abs(line.storage / line.expected_storage - 1) for line in lines)
    covered = mean(line.coverage for line in lines if line.strategy == "RandomServer-20")
    wanted = expected_coverage(RandomServer(20), ENTRIES, SERVERS)
    return (
        _said(_near(off, 0, 0.01), f"Table 1: storage is at most {off:.2%} off the formulas"),
        _said(_near(covered, wanted, 0.5), f"RandomServer-20 covers {covered:.2f} entries; {wanted:.1f} ± 0.5 wanted"),
    )


def _asked(curves: Sequence[Sequence[Curve]]) -> tuple[str, str]:
    costs = _by_strategy(curves)
    hashed, in_turn = costs["Hash-2"][14], costs["Round-Robin-2"]
    steps = all(_near(cost, ceil(target / 20), 1e-9) for target, cost in enumerate(in_turn, 1))
    return (
        _said(_near(hashed, 1.124, 0.01), f"Figure 3: Hash-2 asks {hashed:.3f} servers for 15; 1.124 ± 0.01 wanted"),
        _said(steps, f"Figure 3: Round-Robin-2 asks ceil(t/20) servers, t from 1 to {len(in_turn)}"),
    )


def _tolerated(curves: Sequence[Sequence[Curve]]) -> str:
    found = _by_strategy(curves)["Round-Robin-2"]
    as_said = all(
        _near(held, round_robin_tolerance(2, target, ENTRIES, SERVERS), 0) for target, held in enumerate(found, 1)
    )
    text = "Figure 6: Round-Robin-2 tolerates min(n - 1, n + y - 1 - ceil(t·n/h)) failures"
    return _said(as_said, f"{text}, t from 1 to {len(found)}")


def _unfair(curves: Sequence[Sequence[Curve]]) -> tuple[str, str]:
    found = _by_strategy(curves)
    ratios = [fixed / sampled for fixed, sampled in zip(found["Fixed"], found["RandomServer"], strict=True) if sampled]
    text = f"Figure 8: Fixed-x is {min(ratios):.1f} to {max(ratios):.1f} times as unfair as RandomServer-x"
    return (
        _said(
            _two_phases(found["RandomServer"], found["Hash"]),
            "Figure 8: RandomServer-x falls steeply and then evenly; Hash-y rises, and then hardly falls",
        ),
        _said(
            max(ratios) >= ORDER_OF_MAGNITUDE,
            f"{text}; an order of magnitude wanted. By formula (1) it cannot be more than √n: see below",
        ),
    )


def _two_phases(sampled: Sequence[float], hashed: Sequence[float]) -> bool:
    """Say whether the curves have the paper's shapes: until a server or two have the target, and from there on."""
    one_server = FAIR_STORAGE.index(400)
    falls = [before - after for before, after in pairwise(sampled)]
    steep = falls[0] > 2 * falls[one_server] and all(fall > 0 for fall in falls)
    return steep and max(hashed) > 2 * hashed[0] and max(hashed) > hashed[-1] > max(hashed) / 2


def _failing(curves: Sequence[Sequence[Curve]]) -> str:
    share = _by_strategy(curves)["exponential"][3]
    text = f"Figure 9: with a cushion of 3, there is too little for {share:.3%} of the time; 0.1 % wanted"
    return _said(_near(share, 0.001, 0.0005), text)


def _aged(curves: Sequence[Sequence[Curve]]) -> str:
    found = _by_strategy(curves)
    fixed, sampled = found["Fixed-20"][-1], found["RandomServer-20"][-1]
    text = (
        f"Figure 10: after updates, Fixed-20 has {fixed:.2f} and RandomServer-20 {sampled:.2f}; 2 and half of it wanted"
    )
    return _said(_near(fixed, 2, 0.1) and _near(sampled, 1, 0.1), text)


def _steps(curves: Sequence[Sequence[Curve]]) -> str:
    """Say from where on Hash-y's messages are fewer by a whole copy."""
    hashed = list(zip(UPDATED_ENTRIES, _by_strategy(curves)["Hash"], strict=True))
    steps = tuple(h for (_, before), (h, after) in pairwise(hashed) if before - after > STEP)
    text = f"Figure 11: Hash-y has a copy less from {', '.join(map(str, steps))} entries on; 400/3, 200, 400 wanted"
    return _said(steps == BREAKS, text)


def _by_strategy(curves: Sequence[Sequence[Curve]]) -> dict[str, list[float]]:
    """Return means over the seeds, as far as all of them have a value."""
    return {curve.strategy: [v for v in curve.values if v is not None] for curve in over_seeds(curves)}


def _near(value: float, wanted: float, within: float) -> bool:
    return abs(value - wanted) <= within


def _said(reached: bool, text: str) -> str:  # noqa: FBT001 - what it says
    return f"- {'Reached' if reached else '**Not reached**'}: {text}."
