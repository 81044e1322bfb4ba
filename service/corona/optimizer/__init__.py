"""Optimisation of polling rates: how often each channel is polled within the fleet's budget (Honeycomb, §3.2).

All functions are pure and process all channels of one node at once. The times of polls, and the nodes that make them,
are not decided here.

- ``objectives``        a goal as one weight per channel (Table 1), and the delay formula
- ``allocation_solver`` each channel's number n of polls, as a real number; all follow from one number c, the scale
- ``polling_levels``    the choice of n among given numbers of nodes only (polling levels), and its summaries
- ``tradeoff_clusters`` summaries of a node's channels in at most 20 kB
- ``node_allocation``   a node's own channels as an optimisation problem, and c from the fleet's summary
- ``poll_explanation``  explanations of channels' polling rates
"""
