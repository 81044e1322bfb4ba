"""Optimisation of polling rates: the polls that each channel gets within the fleet's budget (Honeycomb, §3.2).

Pure functions over all channels of one node at once. The times of polls and the nodes that make them are not decided
here.

- ``objectives``        a goal as one weight per channel (Table 1), and the delay formula
- ``allocation_solver`` the optimal scale c and each channel's size n (its number of polls), as real numbers
- ``polling_levels``    whole polling levels: wedges of the ring, the choice among them, and its summaries
- ``tradeoff_clusters`` tradeoff clusters: summaries of a node's channels in at most 20 kB
- ``node_allocation``   a node's own channels as an optimisation problem, and c from the fleet's summary
- ``poll_explanation``  explanations of channels' polling rates
"""
