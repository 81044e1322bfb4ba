"""The overlay: which node is responsible for which channel.

Nodes and channels have ids of 160 bits (Corona §3, on Pastry). The node whose id is nearest to a channel's id by XOR is
the channel's *owner*. The n nearest nodes are its *polling set* of size n. The package has no clock, randomness or I/O:
nodes that know the same members get the same answers.

A *wedge* of the paper (all nodes whose ids begin with the same l digits as the channel's id) is also such a set. Prefix
routing therefore still works.

Deviations from the paper:

- Distance is XOR, not numeric distance on the ring. Every size n then has a polling set, the four nearest nodes always
  exist, and there are no orphans (§4).
- A joining node does not take a random id, but one that splits the emptiest part of the id space. The nodes' loads are
  then more equal.
"""
