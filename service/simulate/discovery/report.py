"""The table, plots and report page of the experiment ``discovery``, with the paper's figures and the targets."""

# ruff: noqa: PLR2004 - targets are beside the text that names them

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from rich.table import Table

from service.simulate.discovery.experiment import (
    FIG_9,
    DiscoveryOutcome,
    MixedLoadResult,
    QueryPoint,
    RegistrationPoint,
    run,
)
from service.simulate.discovery.matrices import NODES
from service.simulate.discovery.queries import CLIENTS, LIMIT, Scheme
from service.simulate.report import SEEDS, FigureVerdict, Job, compare, draw, each, render, spread, terminal_table

JOBS = [Job("discovery", run, (seed,)) for seed in SEEDS[:3]]

RATE_S = 10_000
QUERY_RATE_S = 100_000
"""The highest rates of registrations and queries."""


class ReportRow(msgspec.Struct, frozen=True):
    """One row of the page: a result with the paper's value, the target value, and the values of all seeds.

    ``what`` names the result, ``wanted`` is the target, and ``form`` the number format. ``reached`` states whether the
    target is reached; None if there is no target.
    """

    what: str
    paper: str
    wanted: str
    values: Sequence[float]
    form: str = ".1%"
    reached: bool | None = None

    @property
    def shown(self) -> str:
        """The mean of the values, followed by their range, as text."""
        return spread(self.values, form=self.form)


def page(found: dict[str, list[DiscoveryOutcome]]) -> str:
    """Return the report page as Markdown."""
    outcomes = found["discovery"]
    return render(
        "discovery.md.j2",
        outcomes=outcomes,
        comparisons=comparisons(outcomes),
        figures=rows(outcomes),
        paper=_registering(outcomes, "skewed", RATE_S, 200),
        asked=_asking(outcomes, Scheme.OPTIMISED, QUERY_RATE_S),
        nodes=NODES,
        clients=CLIENTS,
        limit=LIMIT,
    )


_ACCEPTED: dict[str, tuple[float, float, str]] = {
    "Fig. 9: success of uniform names": (0.71, 0.81, ""),
    "Fig. 9: success of skewed names": (0.63, 0.73, ""),
    "Fig. 10: success of skewed names, 5,000/s, worst P": (0.95, 1.0, ""),
    "Fig. 10: success of skewed names, 5,000/s, P = 32": (0.0, 0.5, ""),
    "Fig. 12: CV of names on nodes, 2,000/s": (1.14, 1.34, ""),
    "Fig. 12: CV of names on nodes, 10,000/s": (0.349, 0.389, ""),
    "Fig. 12: nodes without names": (0.18, 0.24, "more; it follows from the skew, of which the paper has only a plot"),
    "Fig. 12: most names on a node": (1.0, 2.0, ""),
    "Fig. 11: success of 100,000 queries/s, optimised": (0.95, 1.0, "just below; see the notes"),
    "Fig. 11: most replicas": (4.0, 4.0, ""),
    "Fig. 11: success of 100,000 queries/s, random": (0.0, 0.5, ""),
    "Fig. 11: success of 5,000 queries/s, random": (0.9, 1.0, ""),
    "Fig. 14: matrices of one cell, optimised": (0.91, 0.97, ""),
    "Fig. 14: matrices of one cell, random": (
        0.86,
        0.92,
        "more matrices are replicated; how many depends on the first second, and varies most between seeds",
    ),
    "Fig. 15: messages per registration, optimised": (19.8, 20.8, ""),
    "Fig. 15: messages per registration, random": (29.0, 35.5, "more replicas; see Fig. 14, random"),
    "Fig. 15: registrations with 20 messages, optimised": (0.69, 0.85, ""),
    "Fig. 15: messages per query, optimised": (2.4, 3.0, "fewer, because matrices are smaller; see the notes"),
    "Fig. 15: messages per query, random": (11.8, 15.8, ""),
    "Fig. 15: queries that use one partition, optimised": (0.74, 0.90, ""),
    "Fig. 15: queries that use one partition, random": (0.32, 0.40, ""),
    "Fig. 16: response time of registrations, s, optimised": (0.816, 0.902, ""),
    "Fig. 16: response time of registrations, s, random": (0.856, 0.946, ""),
    "Fig. 16: response time of queries, s, optimised": (0.567, 0.627, ""),
    "Fig. 16: response time of queries, s, random": (0.564, 0.624, ""),
}
"""What counts as the paper's value, by the beginning of a row's name: the least and the greatest value, and the reason
for a difference."""


def comparisons(outcomes: Sequence[DiscoveryOutcome]) -> list[FigureVerdict]:
    """Return the verdicts on all figures of Gao and Steenkiste §V and §VI."""
    found = [
        FigureVerdict("Figs. 1 to 6", "illustrations", "", "no measurements"),
        FigureVerdict(
            "Figs. 7 and 8: skews of names and queries", "plots", "", "assumed; see *Differences from the paper*"
        ),
    ]
    for row in rows(outcomes):
        for name, (low, high, why) in _ACCEPTED.items():
            if row.what.startswith(name):
                found.append(compare(row.what, row.paper, row.values, (low, high), row.form, why=why))
    found.append(
        compare(
            "Fig. 13: greatest rate at partitions 1, 16 and 32 in the last 5 s, in the unit of the threshold",
            "below the threshold",
            [max(max(rates) for rates in outcome.fig_13[-10:]) / 50 for outcome in outcomes],
            (0.0, 1.0),
            ".2f",
        )
    )
    return found


def table(outcome: DiscoveryOutcome) -> Table:
    """Return the results of one run as a table for the terminal."""
    found = [(row.what, row.paper, row.wanted, row.shown) for row in rows([outcome])]
    shown = terminal_table(("", "paper", "target", "measured"), found, f"seed {outcome.seed}")
    for column in shown.columns:
        column.justify, column.no_wrap = "left", False
    return shown


def rows(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    """Return all rows of the page; each row has the values of all ``outcomes``, one per seed."""
    return [*_registrations(outcomes), *_queries(outcomes), *_costs(outcomes), *_product(outcomes)]


def _registrations(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    uniform = each(_registering(outcomes, "uniform", RATE_S, 32), "success")
    fast, slow = (_registering(outcomes, "skewed", rate_s, 200) for rate_s in (RATE_S, 2000))
    skewed, fast_cv, slow_cv = each(fast, "success"), each(fast, "cv"), each(slow, "cv")
    by_most = [{point.partitions: point.success for point in outcome.fig_10} for outcome in outcomes]
    many = [min(points[128], points[200]) for points in by_most]
    few = [points[32] for points in by_most]
    fine, coarse = _near(uniform, 0.76, 0.05), _near(skewed, 0.68, 0.05)
    return [
        ReportRow("Fig. 9: success of uniform names, 10,000/s, P = 32", "76 %", "± 5 points", uniform, reached=fine),
        ReportRow("Fig. 9: success of skewed names, 10,000/s, P = 200", "68 %", "± 5 points", skewed, reached=coarse),
        ReportRow(
            "Fig. 10: success of skewed names, 5,000/s, worst P above 100",
            "> 95 %",
            "> 95 %",
            many,
            reached=mean(many) > 0.95,
        ),
        ReportRow("Fig. 10: success of skewed names, 5,000/s, P = 32", "< 50 %", "", few),
        ReportRow("Fig. 12: CV of names on nodes, 2,000/s", "1.242", "1.24", slow_cv, ".3f", _near(slow_cv, 1.24, 0.1)),
        ReportRow(
            "Fig. 12: CV of names on nodes, 10,000/s", "0.369", "0.37", fast_cv, ".3f", _near(fast_cv, 0.37, 0.02)
        ),
        ReportRow("Fig. 12: nodes without names, 2,000/s", "21 %", "", each(slow, "empty_nodes")),
        ReportRow(
            "Fig. 12: most names on a node, relative to the mean, 10,000/s",
            "< 2 x mean",
            "",
            each(fast, "most_names"),
            ".2f",
        ),
    ]


def _queries(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    optimised = _asking(outcomes, Scheme.OPTIMISED, QUERY_RATE_S)
    best, replicas = each(optimised, "success"), each(optimised, "replicas")
    worst, early = (each(_asking(outcomes, Scheme.RANDOM, rate_s), "success") for rate_s in (QUERY_RATE_S, 5000))
    return [
        ReportRow(
            "Fig. 11: success of 100,000 queries/s, optimised", "> 95 %", "≥ 95 %", best, reached=mean(best) >= 0.95
        ),
        ReportRow(
            "Fig. 11: most replicas, 100,000 queries/s, optimised", "4", "≤ 4", replicas, ".0f", max(replicas) <= 4
        ),
        ReportRow(
            "Fig. 11: success of 100,000 queries/s, random", "collapses", "collapses", worst, reached=mean(worst) < 0.5
        ),
        ReportRow("Fig. 11: success of 5,000 queries/s, random", "> 90 %", "", early),
    ]


def _costs(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    best, random = _mixed(outcomes, Scheme.OPTIMISED), _mixed(outcomes, Scheme.RANDOM)
    single, names = each(best, "single"), each(best, "registration_messages")
    few, asked = each(best, "query_messages"), each(random, "query_messages")

    def both(what: str, papers: tuple[str, str], field: str, form: str) -> list[ReportRow]:
        optimised = ReportRow(f"{what}, optimised", papers[0], "", each(best, field), form)
        return [optimised, ReportRow(f"{what}, random", papers[1], "", each(random, field), form)]

    return [
        ReportRow(
            "Fig. 14: matrices of one cell, optimised",
            "94 %",
            "94 %, ± 3.0%",
            single,
            ".1%",
            _near(single, 0.94, 0.03),
        ),
        ReportRow("Fig. 14: matrices of one cell, random", "89.2 %", "", each(random, "single")),
        ReportRow(
            "Fig. 15: messages per registration, optimised",
            "20.3",
            "20.3, ± 0.50",
            names,
            ".2f",
            _near(names, 20.3, 0.5),
        ),
        ReportRow(
            "Fig. 15: messages per registration, random", "32.3", "", each(random, "registration_messages"), ".1f"
        ),
        ReportRow(
            "Fig. 15: registrations with 20 messages, optimised", "77 %", "", each(best, "least_registration_messages")
        ),
        ReportRow("Fig. 15: messages per query, optimised", "2.7", "≤ 2.7", few, ".2f", mean(few) <= 2.7),
        ReportRow("Fig. 15: messages per query, random", "13.8", "13.8 ± 2", asked, ".1f", _near(asked, 13.8, 2)),
        *both("Fig. 15: queries that use one partition", ("82 %", "36 %"), "one_partition", ".1%"),
        *both("Fig. 16: response time of registrations, s", ("0.859", "0.901"), "registration_s", ".3f"),
        *both("Fig. 16: response time of queries, s", ("0.597", "0.594"), "query_s", ".3f"),
    ]


def _product(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    two, cv = each(outcomes, "two_choices.success"), each(outcomes, "two_choices.cv")
    home, home_cv = each(outcomes, "home.success"), each(outcomes, "home.cv")
    answered, cells, most = (each(outcomes, f"limited.{field}") for field in ("success", "messages", "replicas"))
    probes = each(_mixed(outcomes, Scheme.OPTIMISED), "probes")
    known = "Two choices, loads of nodes known to clients (not in the product)"
    placed = "As shipped, home partition of the name's digest"
    return [
        ReportRow(
            f"Coronet, limited results: success of 100,000 queries/s for {LIMIT} names",
            "",
            "≥ 95 %",
            answered,
            reached=mean(answered) >= 0.95,
        ),
        ReportRow("Coronet, limited results: messages per query", "", "", cells, ".2f"),
        ReportRow("Coronet, limited results: most replicas", "", "≤ 4", most, ".0f", max(most) <= 4),
        ReportRow(f"{placed}: success of skewed names, 10,000/s", "", "≥ 80 %", home, reached=mean(home) >= 0.8),
        ReportRow(f"{placed}: CV of names on nodes, 10,000/s", "", "", home_cv, ".3f"),
        ReportRow(f"{known}: success of skewed names, 10,000/s", "", "≥ 80 %", two, reached=mean(two) >= 0.8),
        ReportRow(f"{known}: CV of names on nodes, 10,000/s", "", "", cv, ".3f"),
        ReportRow("Coronet, size cache: size requests per query", "", "≤ 0.5", probes, ".2f", mean(probes) <= 0.5),
    ]


def _registering(outcomes: Sequence[DiscoveryOutcome], names: str, rate_s: int, most: int) -> list[RegistrationPoint]:
    wanted = (names, rate_s, most)
    points = [point for outcome in outcomes for point in outcome.fig_9]
    return [point for point in points if (point.names, point.rate_s, point.partitions) == wanted]


def _asking(outcomes: Sequence[DiscoveryOutcome], scheme: Scheme, rate_s: int) -> list[QueryPoint]:
    points = [point for outcome in outcomes for point in outcome.fig_11]
    return [point for point in points if (point.scheme, point.rate_s) == (scheme, rate_s)]


def _mixed(outcomes: Sequence[DiscoveryOutcome], scheme: Scheme) -> list[MixedLoadResult]:
    return [found for outcome in outcomes for found in outcome.fig_14_to_16 if found.scheme is scheme]


def _near(values: Sequence[float], aim: float, most: float) -> bool:
    return abs(mean(values) - aim) <= most


def plot_run(outcome: DiscoveryOutcome, file: Path) -> None:
    """Draw the paper's Figures 9 to 16 with the results of one run, and write them to ``file``."""
    panels = (_rates, _partitions, _answered, _balance, _over_time, _sizes, _messages, _responses)
    draw(file, [(panel, outcome) for panel in panels])


def plot(found: dict[str, list[DiscoveryOutcome]], file: Path) -> None:
    """Draw the figures of the run with the first seed, and write them to ``file``."""
    plot_run(found["discovery"][0], file)


def _rates(axis: Any, outcome: DiscoveryOutcome) -> None:
    for names, most in FIG_9:
        points = [point for point in outcome.fig_9 if (point.names, point.partitions) == (names, most)]
        line = ":" if names == "uniform" else "-"
        successes = [point.success for point in points]
        axis.plot([point.rate_s for point in points], successes, line, marker=".", label=f"{names}, P = {most}")
    axis.plot([10_000, 10_000], [0.76, 0.68], "kx", label="paper, P = 32 and 200")
    axis.plot([10_000], [outcome.home.success], "r*", label="as shipped, skewed")
    axis.plot([10_000], [outcome.two_choices.success], "b*", label="two choices, skewed")
    axis.set(title="Registrations that succeed (Fig. 9)", xlabel="names per second", xscale="log", ylim=(0, 1.05))


def _partitions(axis: Any, outcome: DiscoveryOutcome) -> None:
    most = [point.partitions for point in outcome.fig_10]
    axis.plot(most, [point.success for point in outcome.fig_10], "k.-", label="stable")
    axis.plot(most, [point.initial for point in outcome.fig_10], "k.:", label="initial run")
    axis.axhline(0.95, color="0.8", label="paper, above P = 100")
    axis.set(title="Skewed names, 5,000/s (Fig. 10)", xlabel="partitions at most", ylim=(0, 1.05))


def _answered(axis: Any, outcome: DiscoveryOutcome) -> None:
    for scheme in Scheme:
        points = [point for point in outcome.fig_11 if point.scheme is scheme]
        axis.plot([point.rate_s for point in points], [point.success for point in points], ".-", label=scheme)
    axis.plot([outcome.limited.rate_s], [outcome.limited.success], "r*", label="Coronet, limited results")
    axis.axhline(0.95, color="0.8", label="paper, optimised")
    axis.set(title="Queries that succeed (Fig. 11)", xlabel="queries per second", xscale="log", ylim=(0, 1.05))


def _balance(axis: Any, outcome: DiscoveryOutcome) -> None:
    points = [point for point in outcome.fig_9 if (point.names, point.partitions) == ("skewed", 200)]
    axis.plot([point.rate_s for point in points], [point.cv for point in points], "k.-", label="skewed, P = 200")
    axis.plot([2000, 10_000], [1.242, 0.369], "kx", label="paper")
    axis.plot([10_000], [outcome.home.cv], "r*", label="as shipped")
    axis.plot([10_000], [outcome.two_choices.cv], "b*", label="two choices")
    axis.set(title="Coefficient of variation of names on nodes (Fig. 12)", xlabel="names per second", ylim=(0, None))


def _over_time(axis: Any, outcome: DiscoveryOutcome) -> None:
    times = [(place + 1) / 2 for place in range(len(outcome.fig_13))]
    for place, label in enumerate(("first", "16th", "32nd")):
        axis.plot(times, [rates[place] for rates in outcome.fig_13], label=f"{label} partition")
    axis.axhline(50, color="0.8", label="threshold")
    axis.set(title="One popular pair, 2,000 names/s (Fig. 13)", xlabel="seconds", ylabel="registrations/s observed")


def _sizes(axis: Any, outcome: DiscoveryOutcome) -> None:
    for found, marker in zip(outcome.fig_14_to_16, "ox", strict=True):
        partitions, replicas, counts = zip(*found.sizes, strict=True)
        axis.scatter(partitions, replicas, [20 + count**0.5 for count in counts], marker=marker, label=found.scheme)
    axis.set(title="Sizes of matrices (Fig. 14)", xlabel="partitions", ylabel="replicas", xscale="log", yscale="log")


def _messages(axis: Any, outcome: DiscoveryOutcome) -> None:
    for found in outcome.fig_14_to_16:
        registrations, queries = found.message_quantiles
        axis.plot(queries, range(101), label=f"queries, {found.scheme}")
        axis.plot(registrations, range(101), ":", label=f"registrations, {found.scheme}")
    axis.set(title="Messages (Fig. 15)", xlabel="per query or name", ylabel="% of them", xlim=(0, 100))


def _responses(axis: Any, outcome: DiscoveryOutcome) -> None:
    for found in outcome.fig_14_to_16:
        axis.plot(found.query_quantiles_s, range(101), label=f"queries, {found.scheme}")
        axis.plot(found.registration_quantiles_s, range(101), ":", label=f"registrations, {found.scheme}")
    axis.set(title="Response times (Fig. 16)", xlabel="seconds", ylabel="% of them", xlim=(0, 2))
