"""The words of the page ``docs/experiments/corona.md``."""

PAGE = """\
# Corona's simulations

`coronet simulate report --only corona` made this page. Each run is a command of its own; the tables say which.

1,024 nodes, 100,000 channels, 5,000,000 subscriptions (Zipf 0.5), τ = 30 min, maintenance once an hour, six hours from
an empty start; update intervals as in the paper's survey (Corona §5). Every node is simulated for itself: it ticks at
its own phase, tells its contacts its tradeoff clusters in the bytes that go over the wire (median 80 ms), solves for
the sizes of its own channels with what it knows by then, and makes their rotas. Goals, clusters, optimiser,
aggregation, rings, joining and rotas are the product's. Figures are of the last three hours; the first are in the plot.

**Detection is measured**: updates are drawn at random moments, and each waits for the poll that comes next in the
schedule that the owners have really made, changes of n between rounds included. Polls are counted.
*Mean detection* is that of a subscription: each channel has as many updates, weighed by its subscribers. *Delay of a
notification* is that of updates as often as each channel has them.

## Against the paper

Seeds 1 to 5: mean (least to greatest); churn: seed 1. In seconds @ polls per channel per τ.

{against}

The paper's wedges of two digits are empty for {wedges} of 256 prefixes (seeds 1 to 5): their channels are orphans.

![Figures 3 to 10 of the paper, and ours](corona.png)

## All runs

{runs}

*formula* is what the fleet believes to reach: Σ q·τ/(2n) / Σ q with the n it has asked for. *rounds* is after how many
maintenance rounds load and delay stay within 3 %; *over* is the worst τ over the budget (Fast: over the last three
hours). `*` is the mean of seeds 1 to 5, and the worst of them for rounds and over; the others are of seed 1.

## Commands

{commands}

## What differs from the paper, and what that does

- **Wedges are not averages.** n = N/bˡ is the mean number of nodes that share l digits, and what levels are chosen by.
  With random ids a wedge of two digits holds 4 ± 2 nodes, and 1/n is more on average than 1/4: in the paper's mode
  measured delays are above what its formula says, so that Fast, which aims at 30 s, measures some seconds more. (The
  paper says 32.) Wedges that are not empty hold a little more than the mean; owners know what theirs hold, and tell the
  difference with their demand, as the paper's slack cluster does it for orphans: so polls are within the budget as
  counted, not only by the formula.
- **Fine and coarse grain.** The paper has nodes solve for their own channels at fine grain and for others' as clusters,
  and does not say how the two are put together. If each owner held the fleet's λ against its channels one by one, they
  would not add up to what was solved for clusters: Fast would miss its 30 s by 6 s, and Fair would change its mind
  every round. Here a channel does what its cluster does, and of the one cluster at the edge every owner has the same
  share of its own channels take the step, best first: fewer than that would miss the target, more go over it.
- **60 nodes in the paper's mode**: to base 16 there are only the sizes 60, 3.75 and 1, from which nothing near the
  paper's 45 s can be had at this load, by its own formula either: **not reproduced**.
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
- **Churn**: 5 % of the nodes die in an hour and as many join, and 2 % of all messages are lost. A dead node's polls are
  missing until its lease (6 s) ends; who takes a channel over begins its rota anew; who misses an assignment goes on
  by the one before until the next. One of 16 channels, in the order of popularity, is enumerated poll by poll.
- **The first round** is solved with what a node knows by then, which is its own hundred channels. Ours is within a few
  percent of the end at once. In the paper's mode some nodes own many orphans, and while little else is known, Fast
  would have everything polled by everybody to make up for them. So until a node knows all nodes' parts, it spends no
  more than its channels' subscribers would.
- **Less than the product does**: until it knows all nodes' parts, the product has n at what a channel's subscribers
  would poll, leaves gaps alone that move by 1 %, and hands rotas over to new owners. Sizes, summaries and the scale are
  the same, by test.
- **Nearest means XOR** in the paper's mode, too; the owner of an orphan may be another one than in Pastry.
"""
