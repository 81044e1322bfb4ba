"""The optimum of Corona's polls: how many polls each channel gets within the fleet's budget, and why (Honeycomb, §3.2).

Pure functions over all channels of one node at once. Nothing here knows when or by which nodes a channel is polled.

- ``objectives``        a goal as one weight per channel (Table 1), and the delay formula
- ``allocation_solver`` the optimal scale c and the sizes n, as real numbers
- ``polling_levels``    whole polling levels: wedges of the ring, the choice among them, and its summaries
- ``tradeoff_clusters`` tradeoff clusters: summaries of a node's channels in at most 20 kB
- ``node_allocation``   a node's own channels as an optimisation problem, and c from the fleet's summary
- ``poll_explanation``  why a channel is polled as often as it is
"""
