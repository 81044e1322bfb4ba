"""The page ``docs/experiments/corona.md``: what was run, what came out, and what differs from the paper."""

from collections.abc import Callable, Sequence
from statistics import mean

from service.simulate.corona import Outcome
from service.simulate.corona_jobs import command

Found = dict[str, list[Outcome]]

PAGE = """\
# Corona's simulations

`coronet simulate report --only corona` made this page. Each run is a command of its own; the tables say which.

1,024 nodes, 100,000 channels, 5,000,000 subscriptions (Zipf 0.5), τ = 30 min, maintenance once an hour, six hours from
an empty start; update intervals as in the paper's survey (Corona §5). Every node is simulated for itself: it ticks at
its own phase, tells its contacts its tradeoff clusters in the bytes that go over the wire (median {delay}), solves for
the sizes of its own channels with what it knows by then, and makes their rotas. Goals, clusters, optimiser,
aggregation, rings, joining and rotas are the product's. Figures are of the last three hours; the first are in the plot.

**Detection is measured**: updates are drawn at random moments, and each waits for the poll that comes next in the
schedule that the owners have really made, changes of n between rounds included. Polls are counted.
*Mean detection* is that of a subscription: each channel has as many updates, weighed by its subscribers. *Delay of a
notification* is that of updates as often as each channel has them.

## Against the paper

Seed 1; lite: mean of seeds 1 to 5. In seconds @ polls per channel per τ.

{against}

The paper's wedges of two digits are empty for {wedges} of 256 prefixes (seeds 1 to 5): their channels are orphans.

![Figures 3 to 10 of the paper, and ours](corona.png)

## All runs

{runs}

*formula* is what the fleet believes to reach: Σ q·τ/(2n) / Σ q with the n it has asked for. *rounds* is after how many
maintenance rounds load and delay stay within 3 %; *overshoot* is the worst τ over the budget (Fast: over the last
three hours). `*` is a lite of five seeds: its mean.

## Commands

{commands}

## What differs from the paper, and what that does

- **Wedges are not averages.** n = N/bˡ is the mean number of nodes that share l digits. With random ids a wedge of two
  digits holds 4 ± 2 nodes, and 1/n is more on average than 1/4: in the paper's mode measured delays are above what its
  formula says. The paper does not say which of the two its figures are; for Lite, Fair-Sqrt and Fair-Log they lie
  between them, its Fair is nearer to the measured one, and its Fast (32 s) is below both: **not reproduced**.
- **Fast and Fair in the paper's mode**: the level's edge is found by whole clusters and applied to channels one by one,
  so that Fast misses its 30 s even by the formula, and Fair does not come to rest within 3 % in six rounds.
- **60 nodes in the paper's mode**: to base 16 there are only the sizes 60, 3.75 and 1, from which nothing near the
  paper's 45 s can be had at this load, by its own formula either: **not reproduced**. Ours spends 5,002 polls a minute
  of 5,000: its clusters are exact to some ten-thousandths where many channels are at the bound of 60.
- **Orphans** are what random ids happen to make of them.
- **Random waits, literally** (§3.3), take nearly twice as long as even spacing with any n.
- **Bins.** The paper has 16 for every polling level; so has the paper's mode here. With one set of 16 for all levels,
  which is what the product's `log_bins` alone would do, half of all channels fall into the last bin, and Lite comes to
  rest at 82 s @ 41.5 (seed 1). Where n may be any number, 16 bins for everything cost nothing here.
- **A longest wait of 120 s** does not bind at this scale: with Fair alone no channel waits longer than 111 s.
- **Update intervals are given** to owners, as the survey's were in the paper: in six hours nobody could learn them.
- **Updates are Poisson** where the paper is silent. Half the channels are updated once a week, so that few of them
  are in six hours: `detection_of_poisson_updates_s` in the JSON, mean detection estimated from those alone, is within
  some percent of the measured one. Legacy clients poll at random phases.
- **60 nodes**: all subscriptions come at once, not over an hour and a half; maintenance is every half hour, as there.
- **Churn**: {churn}
- **The first round** is solved with what a node knows by then, which is its own hundred channels. Ours is within a few
  percent of the end at once. In 16 bins that is too coarse to find a level's edge, worst for Fast, which polls several
  times what it needs until the second round: the paper's "brief period" over the target. (There a node keeps its own
  channels at fine grain, here it does not.)
- **Less than the product does**: until it knows all nodes' parts, the product has n at what a channel's subscribers
  would poll, leaves gaps alone that move by 1 %, and hands rotas over to new owners. Sizes, summaries and the scale are
  the same, by test.
- **Nearest means XOR** in the paper's mode, too; the owner of an orphan may be another one than in Pastry.
"""


def page(found: Found) -> str:
    """Return the page."""
    return PAGE.format(
        delay="80 ms",
        against=_against(found),
        wedges=", ".join(str(outcome.empty_wedges) for outcome in found["paper's lite"]),
        runs=_runs(found),
        commands="\n".join(f"- {name}: `{command(outcomes[0].setup)}`" for name, outcomes in found.items()),
        churn=CHURN,
    )


CHURN = """5 % of the nodes die in an hour and as many join, and 2 % of all messages are lost. A dead node's polls are
  missing until its lease (6 s) ends; who takes a channel over begins its rota anew; who misses an assignment goes on
  by the one before until the next. One of 16 channels, in the order of popularity, is enumerated poll by poll."""


def _against(found: Found) -> str:
    def shown(name: str) -> str:
        delay_s, polls = (_mean(found[name], field) for field in (_DETECTION, _POLLS))
        return f"{delay_s:.1f} @ {polls:.2f}"

    legacy_s = mean(outcome.legacy_detection_s for outcomes in found.values() for outcome in outcomes)
    papers_fair = found["paper's fair"][0]
    fair, bounded = found["our fair"][0], found["our fair, longest wait"][0]
    lite, calm, restless = found["our lite"], found["our lite"][0], found["our lite, churn"][0]
    sixty = found["our lite on 60 nodes"][0]
    rows: list[tuple[str, ...]] = [
        ("", "paper", "reproduced", "ours", "ours should reach"),
        ("Legacy", "900 @ 50", f"{legacy_s:.0f}", "", ""),
        ("Lite", "53 @ 48.97", shown("paper's lite"), shown("our lite"), "≤ 17.5 @ ≤ 50"),
        ("Fast, T = 30 s", "32 @ 58.75", shown("paper's fast"), shown("our fast"), "30 ± 1 @ ≤ 29"),
        ("Fair", "142 @ 50.14", shown("paper's fair"), shown("our fair"), "≤ 51 @ ≤ 50"),
        ("Fair-Sqrt", "55 @ 49.46", shown("paper's fair-sqrt"), shown("our fair-sqrt"), "≤ 23.5 @ ≤ 50"),
        ("Fair-Log", "53 @ 49.43", shown("paper's fair-log"), shown("our fair-log"), "≤ 18 @ ≤ 50"),
        (
            "Fair, delay of a notification",
            "",
            f"{papers_fair.mean_notification_delay_s:.1f}",
            f"{fair.mean_notification_delay_s:.2f}",
            "≤ 6.0",
        ),
        (
            "Fair + longest wait 120 s: that delay; worst channel",
            "",
            "",
            f"{bounded.mean_notification_delay_s:.2f}; {bounded.longest_mean_wait_s:.1f}",
            "≤ 7; ≤ 120",
        ),
        (
            "Rounds to converge; overshoot (Lite)",
            "2; brief",
            _settling(found["paper's lite"]),
            _settling(lite),
            "≤ 2; ≤ 5 %",
        ),
        (
            "60 nodes: s @ polls per minute",
            "45 @ ~4,500",
            _by_minute(found["paper's lite on 60 nodes"][0]),
            _by_minute(sixty),
            "≤ 42 @ ≤ 5,000",
        ),
        (
            "Churn and loss: detection over calm @ polls",
            "",
            "",
            f"{restless.mean_detection_s / calm.mean_detection_s:.3f} @ {restless.polls_per_channel_per_tau:.2f}",
            "≤ 1.15 @ ≤ 50",
        ),
    ]
    return _table(rows)


_DETECTION: Callable[[Outcome], float] = lambda found: found.mean_detection_s  # noqa: E731 - a column
_POLLS: Callable[[Outcome], float] = lambda found: found.polls_per_channel_per_tau  # noqa: E731 - a column


def _runs(found: Found) -> str:
    rows = [("", "mean", "99 %", "notification", "polls", "formula", "worst channel", "busiest node", "rounds", "over")]
    for name, outcomes in found.items():
        first = outcomes[0]
        rows.append(
            (
                name + ("*" if len(outcomes) > 1 else ""),
                f"{_mean(outcomes, _DETECTION):.2f}",
                f"{_mean(outcomes, lambda one: one.p99_detection_s):.1f}",
                f"{_mean(outcomes, lambda one: one.mean_notification_delay_s):.2f}",
                f"{_mean(outcomes, _POLLS):.2f}",
                f"{_mean(outcomes, lambda one: one.formula_detection_s):.2f}",
                f"{_mean(outcomes, lambda one: one.longest_mean_wait_s):.0f}",
                f"{_mean(outcomes, lambda one: one.node_load_max_over_mean):.3f}",
                str(first.converged_after_rounds or "never"),
                f"{max(one.max_overshoot for one in outcomes):.1%}",
            )
        )
    return _table(rows)


def _mean(outcomes: Sequence[Outcome], field: Callable[[Outcome], float]) -> float:
    return mean(map(field, outcomes))


def _settling(outcomes: Sequence[Outcome]) -> str:
    rounds = sorted({str(outcome.converged_after_rounds or "never") for outcome in outcomes})
    return f"{'/'.join(rounds)}; {max(outcome.max_overshoot for outcome in outcomes):.1%}"


def _by_minute(found: Outcome) -> str:
    per_minute = found.polls_per_channel_per_tau * found.setup.channels / found.setup.poll_interval_s * 60
    return f"{found.mean_detection_s:.1f} @ {per_minute:,.0f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])
