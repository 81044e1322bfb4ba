"""The table, plots and report page of the experiment ``discovery``, including the paper's figures and the targets."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from rich.table import Table

from service.simulate.discovery.experiment import FIG_9, DiscoveryOutcome, run
from service.simulate.discovery.matrices import NODES
from service.simulate.discovery.queries import CLIENTS, LIMIT, Scheme
from service.simulate.report import SEEDS, Job, draw, each, render, spread, terminal_table

JOBS = [Job("discovery", run, (seed,)) for seed in SEEDS[:3]]


class ReportRow(msgspec.Struct, frozen=True):
    """One row of a table in the report: a result for all seeds, compared with the paper's value and with a target.

    - ``what`` is the name of the result.
    - ``values`` contains the result for each seed.
    - ``form`` is the format specification with which values are shown.
    - ``paper`` is the paper's value as text.
    - ``accepted`` is the range in which a value counts as equal to the paper's value.
    - ``why`` explains values outside the range ``accepted``.
    - ``wanted`` is the target as text.
    - ``target`` is the range in which the mean of the values has to be; None means the range ``accepted``.
    """

    what: str
    values: Sequence[float]
    form: str = ".1%"
    paper: str = ""
    accepted: tuple[float, float] = (-inf, inf)
    why: str = ""
    wanted: str = ""
    target: tuple[float, float] | None = None

    @property
    def shown(self) -> str:
        """The mean of the values, followed by their minimum and maximum, as text."""
        return spread(self.values, form=self.form)

    @property
    def is_reached(self) -> bool:
        """Whether the mean of the values is in the target range."""
        low, high = self.target or self.accepted
        return low <= mean(self.values) <= high


def page(found: dict[str, list[DiscoveryOutcome]]) -> str:
    """Return the report page as Markdown."""
    outcomes = found["discovery"]
    return render(
        "discovery.md.j2",
        outcomes=outcomes,
        figures=rows(outcomes),
        highest_rates=[max(map(max, outcome.fig_13[-10:])) / 50 for outcome in outcomes],
        paper=_points(outcomes, "fig_9", names="skewed", rate_s=10_000, partitions=200),
        highest_load=_points(outcomes, "fig_11", scheme=Scheme.OPTIMISED, rate_s=100_000),
        nodes=NODES,
        clients=CLIENTS,
        limit=LIMIT,
    )


def table(outcome: DiscoveryOutcome) -> Table:
    """Return the results of one run as a table for the terminal."""
    found = [(row.what, row.paper, row.wanted, row.shown) for row in rows([outcome])]
    shown = terminal_table(("", "paper", "target", "measured"), found, f"seed {outcome.seed}")
    for column in shown.columns:
        column.justify, column.no_wrap = "left", False
    return shown


def rows(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    """Return all rows of the page. Each row shows the values of all ``outcomes``, one for each seed."""
    return [*_registrations(outcomes), *_queries(outcomes), *_mixed_loads(outcomes), *_product(outcomes)]


def _points(outcomes: Sequence[DiscoveryOutcome], figure: str, **fields: object) -> list[Any]:
    """Return the points of ``figure`` that have the attribute values in ``fields``, from all ``outcomes``.

    If these values identify a single point of the figure, the result contains one point per outcome.
    """
    points = [point for outcome in outcomes for point in getattr(outcome, figure)]
    return [point for point in points if all(getattr(point, name) == value for name, value in fields.items())]


def _registrations(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    even = _points(outcomes, "fig_9", names="uniform", rate_s=10_000, partitions=32)
    fast = _points(outcomes, "fig_9", names="skewed", rate_s=10_000, partitions=200)
    slow = _points(outcomes, "fig_9", names="skewed", rate_s=2000, partitions=200)
    few, many, most = (each(_points(outcomes, "fig_10", partitions=number), "success") for number in (32, 128, 200))
    empty, largest, worst = each(slow, "empty_nodes"), each(fast, "most_names"), list(map(min, many, most))
    success, cv, near = "Fig. 9: success of", "Fig. 12: CV of names on nodes", "± 5 points"
    skewed = "Fig. 10: success of skewed names, 5,000/s"
    why = "more; it follows from the skew, of which the paper has only a plot"
    share = "Fig. 12: most names on a node, relative to the mean, 10,000/s"
    row = ReportRow
    return [
        row(f"{success} uniform names, 10,000/s, P = 32", each(even, "success"), ".1%", "76 %", (0.71, 0.81), "", near),
        row(f"{success} skewed names, 10,000/s, P = 200", each(fast, "success"), ".1%", "68 %", (0.63, 0.73), "", near),
        row(f"{skewed}, worst P above 100", worst, ".1%", "> 95 %", (0.95, 1.0), "", "> 95 %"),
        row(f"{skewed}, P = 32", few, ".1%", "< 50 %", (0.0, 0.5)),
        row(f"{cv}, 2,000/s", each(slow, "cv"), ".3f", "1.242", (1.14, 1.34), "", "1.24"),
        row(f"{cv}, 10,000/s", each(fast, "cv"), ".3f", "0.369", (0.349, 0.389), "", "0.37", (0.35, 0.39)),
        row("Fig. 12: nodes without names, 2,000/s", empty, ".1%", "21 %", (0.18, 0.24), why),
        row(share, largest, ".2f", "< 2 x mean", (1.0, 2.0)),
    ]


def _queries(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    def row(what: str, scheme: Scheme, rate_s: int, field: str, *others: Any) -> ReportRow:
        values = each(_points(outcomes, "fig_11", scheme=scheme, rate_s=rate_s), field)
        return ReportRow(f"Fig. 11: {what} {rate_s:,} queries/s, {scheme}", values, *others)

    best, random, why = Scheme.OPTIMISED, Scheme.RANDOM, "just below; see the notes"
    return [
        row("success of", best, 100_000, "success", ".1%", "> 95 %", (0.95, 1.0), why, "≥ 95 %"),
        row("most replicas,", best, 100_000, "replicas", ".0f", "4", (4.0, 4.0), "", "≤ 4", (0.0, 4.0)),
        row("success of", random, 100_000, "success", ".1%", "collapses", (0.0, 0.5), "", "collapses"),
        row("success of", random, 5000, "success", ".1%", "> 90 %", (0.9, 1.0)),
    ]


def _mixed_loads(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    def row(figure: str, scheme: Scheme, field: str, *others: Any) -> ReportRow:
        return ReportRow(
            f"Fig. {figure}, {scheme}", each(_points(outcomes, "fig_14_to_16", scheme=scheme), field), *others
        )

    best, random = Scheme.OPTIMISED, Scheme.RANDOM
    varied = "more matrices are replicated; how many depends on the first second, and varies most between seeds"
    smaller = "fewer, because matrices are smaller; see the notes"
    more = "more replicas; see Fig. 14, random"
    names, fewest = "registration_messages", "least_registration_messages"
    return [
        row("14: matrices of one cell", best, "single", ".1%", "94 %", (0.91, 0.97), "", "94 %, ± 3.0%"),
        row("14: matrices of one cell", random, "single", ".1%", "89.2 %", (0.86, 0.92), varied),
        row("15: messages per registration", best, names, ".2f", "20.3", (19.8, 20.8), "", "20.3, ± 0.50"),
        row("15: messages per registration", random, names, ".1f", "32.3", (29.0, 35.5), more),
        row("15: registrations with 20 messages", best, fewest, ".1%", "77 %", (0.69, 0.85)),
        row("15: messages per query", best, "query_messages", ".2f", "2.7", (2.4, 3.0), smaller, "≤ 2.7", (0.0, 2.7)),
        row("15: messages per query", random, "query_messages", ".1f", "13.8", (11.8, 15.8), "", "13.8 ± 2"),
        row("15: queries that use one partition", best, "one_partition", ".1%", "82 %", (0.74, 0.90)),
        row("15: queries that use one partition", random, "one_partition", ".1%", "36 %", (0.32, 0.40)),
        row("16: response time of registrations, s", best, "registration_s", ".3f", "0.859", (0.816, 0.902)),
        row("16: response time of registrations, s", random, "registration_s", ".3f", "0.901", (0.856, 0.946)),
        row("16: response time of queries, s", best, "query_s", ".3f", "0.597", (0.567, 0.627)),
        row("16: response time of queries, s", random, "query_s", ".3f", "0.594", (0.564, 0.624)),
    ]


def _product(outcomes: Sequence[DiscoveryOutcome]) -> list[ReportRow]:
    limited, skewed = "Coronet, limited results", "skewed names, 10,000/s"
    home = "As shipped, home partition of the name's digest"
    two, choices = "Two choices, loads of nodes known to clients (not in the product)", each(outcomes, "two_choices")
    found = f"{limited}: success of 100,000 queries/s for {LIMIT} names"
    probes = each(_points(outcomes, "fig_14_to_16", scheme=Scheme.OPTIMISED), "probes")
    replicas = each(outcomes, "limited.replicas")
    return [
        ReportRow(found, each(outcomes, "limited.success"), wanted="≥ 95 %", target=(0.95, 1.0)),
        ReportRow(f"{limited}: messages per query", each(outcomes, "limited.messages"), ".2f"),
        ReportRow(f"{limited}: most replicas", replicas, ".0f", wanted="≤ 4", target=(0.0, 4.0)),
        ReportRow(f"{home}: success of {skewed}", each(outcomes, "home.success"), wanted="≥ 80 %", target=(0.8, 1.0)),
        ReportRow(f"{home}: CV of names on nodes, 10,000/s", each(outcomes, "home.cv"), ".3f"),
        ReportRow(f"{two}: success of {skewed}", each(choices, "success"), wanted="≥ 80 %", target=(0.8, 1.0)),
        ReportRow(f"{two}: CV of names on nodes, 10,000/s", each(choices, "cv"), ".3f"),
        ReportRow("Coronet, size cache: size requests per query", probes, ".2f", wanted="≤ 0.5", target=(0.0, 0.5)),
    ]


def plot_run(outcome: DiscoveryOutcome, file: Path) -> None:
    """Draw Figures 9 to 16 of the paper with the results of one run, and save them to ``file``."""
    panels = (_rates, _partitions, _answered, _balance, _over_time, _sizes, _messages, _responses)
    draw(file, [(panel, outcome) for panel in panels])


def plot(found: dict[str, list[DiscoveryOutcome]], file: Path) -> None:
    """Draw Figures 9 to 16 of the paper with the results of the first seed, and save them to ``file``."""
    plot_run(found["discovery"][0], file)


def _rates(axis: Any, outcome: DiscoveryOutcome) -> None:
    for names, most in FIG_9:
        points = _points([outcome], "fig_9", names=names, partitions=most)
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
        points = _points([outcome], "fig_11", scheme=scheme)
        axis.plot([point.rate_s for point in points], [point.success for point in points], ".-", label=scheme)
    axis.plot([outcome.limited.rate_s], [outcome.limited.success], "r*", label="Coronet, limited results")
    axis.axhline(0.95, color="0.8", label="paper, optimised")
    axis.set(title="Queries that succeed (Fig. 11)", xlabel="queries per second", xscale="log", ylim=(0, 1.05))


def _balance(axis: Any, outcome: DiscoveryOutcome) -> None:
    points = _points([outcome], "fig_9", names="skewed", partitions=200)
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
