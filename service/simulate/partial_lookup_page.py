"""The page ``docs/experiments/partial-lookup.md``: what was done, the figures, and what they say."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean

from service.simulate import partial_lookup_stars as stars
from service.simulate.partial_lookup import Outcome
from service.simulate.partial_lookup_stars import ALIKE, Column, contradicted
from service.simulate.partial_lookup_static import (
    COVERED_STORAGE,
    ENTRIES,
    FAIR_STORAGE,
    INSTANCES,
    INSTANCES_PER_POINT,
    SERVERS,
    STORAGE,
    Curve,
)
from service.simulate.partial_lookup_updates import (
    AGED_INSTANCES,
    AGED_UPDATES,
    BETWEEN_ADDS,
    CUSHIONED_TIME,
    CUSHIONS,
    UPDATED_ENTRIES,
    UPDATES,
    longest,
)
from service.simulate.partial_lookup_verdict import over_seeds, verdict

PAGE = """\
# Partial lookup

`coronet simulate report --only partial-lookup` made this page; `coronet simulate partial-lookup --seed 1` is a run.

{entries} entries on {servers} servers, storage for {storage} unless a figure varies it, seeds {seeds}. The servers and
their messages, the order in which a client asks, the metrics and the formulas are the product's
(`service/discovery/partial`). Per seed there are {instances:,} placements of RandomServer-20 and Hash-2, and
{points} per point of a curve; of each, the metrics are exact: means over all lookups there can be, and over all sets of
servers that can fail, where the paper draws some and has a heuristic.

## Against the paper

{verdict}

![Figures 3, 5, 6 and 8 to 11 of the paper](partial-lookup.png)

Seed {first}. The paper's own figures are not to be had as numbers, but for what its text says.

## Storage and coverage (Table 1, Figure 5)

Means over seeds and placements.

{table_1}

Coverage by storage (Round-Robin-y and Hash-y: what there is storage for, up to all {entries} entries).

{coverages}

## Lookup cost and fault tolerance (Figures 3 and 6)

Servers asked on average / servers that may fail, in the worst case; - where not all placements have as many entries.

{targets}

## Unfairness (Figures 8 and 10)

By storage, target 35:

{unfairness}

After so many updates, target 15, {aged} placements per seed:

{aged_unfairness}

## Cushion (Figure 9)

Share of the time in which Fixed-(15 + cushion) has less than 15 entries; {time:,.0f} time units per seed.

{failing}

With lifetimes of 2,000 and a cushion of 2 the formula gives {twice:.2%}: as in the paper, that is enough for 0.1 %.

## Messages per update (Figure 11)

Target 40, {updates:,} updates per point and seed; *formula* is the paper's, 1 + x·n/h and 1 + y.

{overheads}

## The stars (Table 2)

Measured, then our stars and the paper's. Ours follow one rule: the best has four, the worst one, the others by the
logarithm; within {alike:.0%} all have four. Fault tolerance and lookup cost are means over targets of 1 to 50, of those
that a strategy can serve at all, and *least* is ceil(t/20), what no strategy with 20 entries per server can go below on
all servers; *few updates* are none, *many* {most_updates:,}.

{stars}

In {pairs} of {all_pairs} pairs of strategies the paper's order is the opposite of ours{which}.

## How to read it

- **"An order of magnitude worse"** is what the paper says of Fixed-x in Figure 8. By its own formula (1) the two are
  closer: where one server is enough, Fixed-x has √((h - x)/x) and RandomServer-x 1/√n of that, so that Fixed-x is
  √{servers} = {root:.2f} times as unfair, whatever the storage; where several have to be asked it is less, because
  Fixed-x then returns all it has. That is what is measured. (With a hundred servers it would be ten times.) What the
  paper says of the same figure leaves no room for ten either: the 11 entries that RandomServer-20 does not cover bound
  its unfairness from below, which is √(11/89) = 0.35, and by (1) Fixed-20 has 1.22 at this target: 3.5 times at most.
  What does differ by ten is the square: where one server is enough, the variance of Fixed-x is n times the other.
- **Figure 3** has Round-Robin-2 at ceil(t/20), also between 20 and 40, where Hash-2 is sometimes better and sometimes
  worse, as in the paper.
- **Figure 8**: y is storage / h, and x storage / n. Hash-y uses less than its storage, since hashes meet.
- **Figure 9**: Zipf-like lifetimes are as likely as one through themselves, from 1 to {longest:,.0f}; the paper gives
  no numbers. Which lifetimes there are hardly matters, and so our formula, a birth-death chain of exponential ones, is
  what the product computes its cushions with. A tail that "tapers off" is not seen: with those large cushions a run has
  but a handful of failures, or none.
- **Figure 10**: a Fixed-20 has an unfairness of 2 whatever the target, as the paper says, and RandomServer-20 comes to
  half of that. Round-Robin-2 is not quite 0 any more, because h is not always a multiple of n.
- **Figure 11**: Hash-y takes fewer messages than 1 + y, because hashes meet: y = 4 is 3.44 servers on average.
- Round-Robin-y's updates are in the paper's extended version only; what is counted is our way of them.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page from the runs of all seeds."""
    columns = [stars.over_seeds(seeds) for seeds in zip(*(outcome.table_2 for outcome in outcomes), strict=True)]
    against = [f"{column.name} ({contradicted(column)})" for column in columns if contradicted(column)]
    return PAGE.format(
        entries=ENTRIES,
        servers=SERVERS,
        storage=STORAGE,
        seeds=", ".join(str(outcome.seed) for outcome in outcomes),
        first=outcomes[0].seed,
        instances=INSTANCES,
        points=INSTANCES_PER_POINT,
        verdict=verdict(outcomes),
        table_1=_table_1(outcomes),
        coverages=_curves([o.static.coverages for o in outcomes], COVERED_STORAGE, (20, 50, 100, 150, 200), ".1f"),
        targets=_targets(outcomes),
        unfairness=_curves([o.static.unfairness for o in outcomes], FAIR_STORAGE, (*range(100, 1001, 100),), ".3f"),
        aged=AGED_INSTANCES,
        aged_unfairness=_curves(
            [o.updates.aged_unfairness for o in outcomes], AGED_UPDATES, (0, 100, 200, 500, 1000, 2000), ".2f"
        ),
        time=CUSHIONED_TIME,
        failing=_failing(outcomes),
        twice=outcomes[0].updates.failing_twice_expected,
        updates=UPDATES,
        overheads=_overheads(outcomes),
        alike=ALIKE - 1,
        most_updates=AGED_UPDATES[-1],
        stars=_stars(columns),
        pairs=sum(map(contradicted, columns)),
        all_pairs=6 * len(columns),
        which=f": {', '.join(against)}" if against else "",
        root=sqrt(SERVERS),
        longest=longest(BETWEEN_ADDS * ENTRIES),
    )


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _curves(curves: Sequence[Sequence[Curve]], along: Sequence[int], shown: Sequence[int], form: str) -> str:
    rows = [
        [curve.strategy, *(_cell(curve.values[along.index(x)], form) for x in shown)] for curve in over_seeds(curves)
    ]
    return _markdown(["", *(f"{x:,}" for x in shown)], rows)


def _table_1(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for seeds in zip(*(outcome.static.table_1 for outcome in outcomes), strict=True):
        kept, covered = mean(s.storage for s in seeds), mean(s.coverage for s in seeds)
        expected = [f"{seeds[0].expected_storage:.1f}", f"{covered:.2f}", f"{seeds[0].expected_coverage:.2f}"]
        rows.append([seeds[0].strategy, f"{kept:.1f}", *expected])
    return _markdown(["", "storage", "formula", "coverage", "formula"], rows)


def _targets(outcomes: Sequence[Outcome]) -> str:
    costs = over_seeds([outcome.static.lookup_costs for outcome in outcomes])
    tolerances = over_seeds([outcome.static.fault_tolerances for outcome in outcomes])
    shown = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    rows = [
        [cost.strategy, *(f"{_cell(cost.values[t - 1], '.3f')} / {_cell(held.values[t - 1], '.1f')}" for t in shown)]
        for cost, held in zip(costs, tolerances, strict=True)
    ]
    return _markdown(["target", *map(str, shown)], rows)


def _failing(outcomes: Sequence[Outcome]) -> str:
    rows = [
        [curve.strategy, *(_cell(value, ".2g") for value in curve.values)]
        for curve in over_seeds([outcome.updates.failing for outcome in outcomes])
    ]
    rows.append(["our formula", *(f"{value:.2g}" for value in outcomes[0].updates.failing_expected)])
    return _markdown(["cushion", *map(str, CUSHIONS)], rows)


def _overheads(outcomes: Sequence[Outcome]) -> str:
    curves = [
        *over_seeds([outcome.updates.overheads for outcome in outcomes]),
        *(Curve(f"{curve.strategy}, formula", curve.values) for curve in outcomes[0].updates.overheads_expected),
    ]
    shown = (100, 133, 134, 199, 200, 300, 399, 400, 500, 600)
    return _curves([curves], UPDATED_ENTRIES, shown, ".2f")


def _stars(columns: Sequence[Column]) -> str:
    rows = []
    for column in columns:
        cells = zip(column.measured, column.stars, column.paper, strict=True)
        shown = [f"{cost:,.4g} {'★' * ours} ({'★' * paper})" for cost, ours, paper in cells]
        rows.append([f"{column.name}: {column.what}", *shown])
    return _markdown(["", "Fixed-x", "RandomServer-x", "Round-Robin-y", "Hash-y"], rows)
