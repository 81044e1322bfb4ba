"""The page ``docs/experiments/corona.md``: what was run, what came out, and what differs from the paper."""

from collections.abc import Callable, Sequence
from statistics import mean

from service.simulate.corona import Outcome
from service.simulate.corona_jobs import command
from service.simulate.corona_text import PAGE

Found = dict[str, list[Outcome]]


def page(found: Found) -> str:
    """Return the page."""
    return PAGE.format(
        against=_against(found),
        wedges=", ".join(str(outcome.empty_wedges) for outcome in found["paper's lite"]),
        runs=_runs(found),
        commands="\n".join(f"- {name}: `{command(outcomes[0].setup)}`" for name, outcomes in found.items()),
    )


def _against(found: Found) -> str:
    def shown(name: str) -> str:
        return f"{_spread(found[name], _DETECTION, 1)} @ {_spread(found[name], _POLLS, 2)}"

    def both(label: str, name: str, paper: str, ours: str) -> tuple[str, ...]:
        return label, paper, shown(f"paper's {name}"), shown(f"our {name}"), ours

    everything = [outcome for outcomes in found.values() for outcome in outcomes]
    bounded, restless = found["our fair, longest wait"], found["our lite, churn"]
    calm_s = mean(map(_DETECTION, found["our lite"]))
    rows: list[tuple[str, ...]] = [
        ("", "paper", "reproduced", "ours", "ours should reach"),
        ("Legacy", "900 @ 50", _spread(everything, lambda one: one.legacy_detection_s, 0), "", ""),
        both("Lite", "lite", "53 @ 48.97", "≤ 17.5 @ ≤ 50"),
        both("Fast, T = 30 s", "fast", "32 @ 58.75", "30 ± 1 @ ≤ 29"),
        both("Fair", "fair", "142 @ 50.14", "≤ 51 @ ≤ 50"),
        both("Fair-Sqrt", "fair-sqrt", "55 @ 49.46", "≤ 23.5 @ ≤ 50"),
        both("Fair-Log", "fair-log", "53 @ 49.43", "≤ 18 @ ≤ 50"),
        (
            "Fair, delay of a notification",
            "",
            _spread(found["paper's fair"], _NOTIFICATION, 1),
            _spread(found["our fair"], _NOTIFICATION, 2),
            "≤ 6.0",
        ),
        (
            "Fair + longest wait 120 s: that delay; worst channel",
            "",
            "",
            f"{_spread(bounded, _NOTIFICATION, 2)}; {_spread(bounded, lambda one: one.longest_mean_wait_s, 1)}",
            "≤ 7; ≤ 120",
        ),
        *(
            (
                f"Rounds to converge; overshoot ({goal.capitalize()})",
                "2; brief" if goal == "lite" else "",
                _settling(found[f"paper's {goal}"]),
                _settling(found[f"our {goal}"]),
                "≤ 2; ≤ 5 %",
            )
            for goal in ("lite", "fast", "fair")
        ),
        (
            "60 nodes: s @ polls per minute",
            "45 @ ~4,500",
            _by_minute(found["paper's lite on 60 nodes"]),
            _by_minute(found["our lite on 60 nodes"]),
            "≤ 42 @ ≤ 5,000",
        ),
        (
            "Churn and loss: detection over calm @ polls",
            "",
            "",
            f"{_spread(restless, lambda one: one.mean_detection_s / calm_s, 3)} @ {_spread(restless, _POLLS, 2)}",
            "≤ 1.15 @ ≤ 50",
        ),
    ]
    return _table(rows)


_DETECTION: Callable[[Outcome], float] = lambda found: found.mean_detection_s  # noqa: E731 - a column
_POLLS: Callable[[Outcome], float] = lambda found: found.polls_per_channel_per_tau  # noqa: E731 - a column
_NOTIFICATION: Callable[[Outcome], float] = lambda found: found.mean_notification_delay_s  # noqa: E731 - a column


def _runs(found: Found) -> str:
    rows = [("", "mean", "99 %", "notification", "polls", "formula", "worst channel", "busiest node", "rounds", "over")]
    for name, outcomes in found.items():
        rounds = [one.converged_after_rounds for one in outcomes]
        rows.append(
            (
                name + ("*" if len(outcomes) > 1 else ""),
                f"{_mean(outcomes, _DETECTION):.2f}",
                f"{_mean(outcomes, lambda one: one.p99_detection_s):.1f}",
                f"{_mean(outcomes, _NOTIFICATION):.2f}",
                f"{_mean(outcomes, _POLLS):.2f}",
                f"{_mean(outcomes, lambda one: one.formula_detection_s):.2f}",
                f"{_mean(outcomes, lambda one: one.longest_mean_wait_s):.0f}",
                f"{_mean(outcomes, lambda one: one.node_load_max_over_mean):.3f}",
                "never" if None in rounds else str(max(count for count in rounds if count is not None)),
                f"{max(one.max_overshoot for one in outcomes):.1%}",
            )
        )
    return _table(rows)


def _mean(outcomes: Sequence[Outcome], field: Callable[[Outcome], float]) -> float:
    return mean(map(field, outcomes))


def _settling(outcomes: Sequence[Outcome]) -> str:
    rounds = sorted({str(outcome.converged_after_rounds or "never") for outcome in outcomes})
    return f"{'/'.join(rounds)}; {max(outcome.max_overshoot for outcome in outcomes):.1%}"


def _by_minute(found: Sequence[Outcome]) -> str:
    setup = found[0].setup
    polls = _spread(found, lambda one: _POLLS(one) * setup.channels / setup.poll_interval_s * 60, 0)
    return f"{_spread(found, _DETECTION, 1)} @ {polls}"


def _spread(outcomes: Sequence[Outcome], field: Callable[[Outcome], float], digits: int) -> str:
    """Return the mean, and in brackets the least and the greatest, if they look different."""
    values = list(map(field, outcomes))
    shown, least, greatest = (f"{value:,.{digits}f}" for value in (mean(values), min(values), max(values)))
    return shown if least == greatest else f"{shown} ({least} to {greatest})"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])
