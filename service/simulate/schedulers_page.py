"""The page ``docs/experiments/schedulers.md``: what was done, the figures, and what they say."""

from collections.abc import Iterable, Sequence
from statistics import mean

from service.simulate.schedulers import Comparison, Ours, Peer, Setup
from service.simulate.trace import HOUR_S, WEEK_S

TARGET = 2.0
"""How many times longer than ours each peer's notifications should take."""

PAGE = """\
# Our scheduler and other readers'

`coronet simulate report --only schedulers` made this page; `coronet simulate schedulers --seed N` shows one run of it
at any scale.

One trace of publishers for everybody: {channels:,} channels with the update intervals and the popularity of Corona §5.
A peer polls it as its own source says, by default settings, and so fixes how many requests it takes; ours then spends
as many (within 1 %). Everybody begins cold, has {weeks} weeks to learn, and is measured for {weeks} weeks. The delay of
a notification is from publication to the poll that finds the entry, and each subscriber's counts.
[peers.py](../../service/simulate/peers.py) has each peer's formula and where it stands in its source.

## How many times longer peers' notifications take

Means over {seeds} seeds, by the mean delay of a notification; **bold** where ours is at least twice as fast.

- *ours*: goal Fair; production's estimates, weights, optimiser and rotas.
- *polite*: the same within the product's default of 12 polls of one public channel an hour.
- *with rhythm*: the same on clocks that learn when each publisher tends to publish. It is not in the product.
- *at most*: what the same requests give who knows every publisher's true mean interval and spaces polls evenly. Against
  Poisson publishers nobody can be faster, but for chance.

Poisson publishers:

{poisson}

Rhythmic publishers: the same intervals, but busy in office hours and less so at weekends, in 24 time zones, and a third
of them with several entries at a time. These habits are our choice, not a measurement:

{rhythmic}

![Mean delay over requests](schedulers.png)

## What it says

The target is twice as fast as every peer. It is not reached against all:

{verdict}
- **Why not twice against everybody.** By Cauchy and Schwarz the least mean delay for B requests is (Σ√w)²/(2B·Σw) with
  w = subscribers/interval. Who asks all channels equally often is as far from it as the weights are unequal: about
  three times, with the paper's intervals. Who already asks busy channels more often is nearer, and *at most* is how far
  from it each peer is. Against Poisson publishers no scheduler can pass that with the same requests; habits of
  publishers can be learnt, and *with rhythm* is what those of the second table are worth.
- **Somebody pays for the mean.** Who publishes rarely waits longer with ours than with a peer that has a longest
  interval: JabRSS's p95 is below ours. A bound on the longest wait is an option of the optimiser; it is not used here.
- **The goal matters.** Fair is the one that minimises this figure. With Lite, which looks at subscribers only, peers
  that go by how often a channel publishes are ahead of us; see the last table.
- **Politeness binds.** Peers that ask a channel every 6 to 10 minutes spend so much that the optimum asks the busiest
  ones more often than every 5 minutes, which the product does not do to a public channel by default.
- **To the peers' favour**: no batches (Miniflux by default sweeps 100 feeds an hour), all of NewsBlur's readers pay,
  nobody misses entries that scrolled out of a feed, hints of publishers (TTL, cache lifetimes) are absent, and there
  are no failures. **To ours**: our budget is spent evenly over time and channels come and go for nobody.

## Delays, Poisson publishers

Means over the seeds.

{figures}

## Each seed

How many times longer the peer's notifications take than ours:

{by_seed}

## Other goals

Seed 1, Poisson publishers. Fair is the goal that minimises this figure; the others minimise others.

{goals}
"""


def page(poisson: Sequence[Comparison], rhythmic: Sequence[Comparison], goals: Sequence[Comparison]) -> str:
    """Return the page from several seeds of each kind of publishers, and one seed of other goals."""
    return PAGE.format(
        channels=poisson[0].setup.channels,
        weeks=poisson[0].setup.weeks,
        seeds=len(poisson),
        poisson=ratios(poisson),
        rhythmic=ratios(rhythmic),
        figures=delays(poisson),
        by_seed=by_seed({"poisson": poisson, "rhythmic": rhythmic}),
        goals=by_goal([poisson[0], *goals]),
        verdict=verdict(poisson, rhythmic),
    )


def polls_per_channel_hour(peer: Peer, setup: Setup) -> float:
    """Return how often a channel is polled on average."""
    return peer.requests / setup.channels / (setup.weeks * WEEK_S / HOUR_S)


def ratios(comparisons: Sequence[Comparison]) -> str:
    """Return a table of ratios, the mean over the seeds and the range of ours."""
    lines = ["| peer | polls per channel and hour | ours | its range | polite | with rhythm | at most |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|"]
    for peers in peers_of(comparisons):
        asked = mean(polls_per_channel_hour(peer, comparisons[0].setup) for peer in peers)
        ours = [peer.ours.ratio for peer in peers]
        others = [(peer.ours_polite, peer.ours_with_rhythm, peer.known) for peer in peers]
        cells = [f"{ratio(kind):.2f}" for kind in zip(*others, strict=True)]
        bold = "**" if mean(ours) >= TARGET else ""
        first = (
            f"| {peers[0].name} | {asked:.2f} | {bold}{mean(ours):.2f}{bold} | {min(ours):.2f} to {max(ours):.2f} | "
        )
        lines.append(first + " | ".join(cells) + " |")
    return "\n".join(lines)


def delays(comparisons: Sequence[Comparison]) -> str:
    """Return a table of delays and wasted polls, means over the seeds."""
    lines = ["| peer | its mean | ours | its p95 | ours | its wasted polls | ours |", "|---|--:|--:|--:|--:|--:|--:|"]
    for peers in peers_of(comparisons):
        pairs = [(peer, peer.ours) for peer in peers]
        cells = [f"{mean(one[who].mean_notification_delay_s for one in pairs):,.0f} s" for who in (0, 1)]
        cells += [f"{mean(one[who].p95_s for one in pairs):,.0f} s" for who in (0, 1)]
        cells += [f"{mean(one[who].wasted_share for one in pairs):.0%}" for who in (0, 1)]
        lines.append(f"| {peers[0].name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_seed(kinds: dict[str, Sequence[Comparison]]) -> str:
    """Return a table of each seed's ratio."""
    seeds = [found.seed for found in next(iter(kinds.values()))]
    lines = ["| publishers | peer | " + " | ".join(f"seed {seed}" for seed in seeds) + " |"]
    lines += ["|---|---|" + "--:|" * len(seeds)]
    for kind, comparisons in kinds.items():
        for peers in peers_of(comparisons):
            lines.append(f"| {kind} | {peers[0].name} | " + " | ".join(f"{one.ours.ratio:.2f}" for one in peers) + " |")
    return "\n".join(lines)


def by_goal(comparisons: Sequence[Comparison]) -> str:
    """Return a table of ratios by goal, of one seed."""
    lines = ["| peer | " + " | ".join(found.setup.goal for found in comparisons) + " |"]
    lines += ["|---|" + "--:|" * len(comparisons)]
    for peers in peers_of(comparisons):
        lines.append(f"| {peers[0].name} | " + " | ".join(f"{peer.ours.ratio:.2f}" for peer in peers) + " |")
    return "\n".join(lines)


def verdict(poisson: Sequence[Comparison], rhythmic: Sequence[Comparison]) -> str:
    """Say against whom the target is reached, and how near ours is to what can be reached."""
    lines = []
    for kind, comparisons in (("Poisson", poisson), ("Rhythmic", rhythmic)):
        reached = [peers[0].name for peers in peers_of(comparisons) if ratio(peer.ours for peer in peers) >= TARGET]
        clocks = [p[0].name for p in peers_of(comparisons) if ratio(peer.ours_with_rhythm for peer in p) >= TARGET]
        lines.append(f"- {kind} publishers, ours: at least twice as fast as {_listed(reached)}.")
        if clocks != reached:
            lines.append(f"- {kind} publishers, with rhythm: at least twice as fast as {_listed(clocks)}.")
    near = min(ratio(p.ours for p in peers) / ratio(p.known for p in peers) for peers in peers_of(poisson))
    lines.append(f"- Poisson publishers: ours has learnt enough to be at {near:.0%} of *at most* or nearer.")
    return "\n".join(lines)


def peers_of(comparisons: Sequence[Comparison]) -> list[tuple[Peer, ...]]:
    """Return each peer's figures in all of these comparisons."""
    return list(zip(*(found.schedulers for found in comparisons), strict=True))


def ratio(beside: Iterable[Ours]) -> float:
    """Return the mean ratio."""
    return mean(one.ratio for one in beside)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nobody"
