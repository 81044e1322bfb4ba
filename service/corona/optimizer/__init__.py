"""Optimisation of polling rates: how often each channel is polled within the fleet's budget (Honeycomb, §3.2).

All functions are pure, and each call processes all channels of one node. The package decides only how often a channel
is polled; the times of the polls, and the nodes that make them, are decided elsewhere.

- ``objectives``        the weight of each channel under an optimisation goal (Table 1), and the delay formula
- ``allocation_solver`` each channel's number of polls n, as a real number that depends on one factor, the scale c
- ``polling_levels``    how n is chosen if only certain numbers of nodes (polling levels) are allowed
- ``tradeoff_clusters`` summaries of a node's channels in at most 20 kB
- ``node_allocation``   the optimisation problem of one node's channels, and c as computed from the fleet's summary
- ``poll_explanation``  explanations of channels' polling rates
"""
