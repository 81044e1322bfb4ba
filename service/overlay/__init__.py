"""The overlay: which node is responsible for which channel.

Nodes and channels have ids of 160 bits (Corona §3, on Pastry). The node whose id is nearest to a channel's id by XOR is
the channel's *owner*. The n nearest nodes are the channel's *polling set* of size n. The package uses no clock,
randomness or I/O, so all nodes that know the same members compute the same answers.

In the paper, the polling set is a *wedge*: all nodes whose ids share their first l digits with the channel's id. Every
wedge is also a polling set here, so the paper's prefix routing still works.

Deviations from the paper:

- Distance is XOR, not numeric distance on the ring. As a result, each channel has a polling set of every size, up to
  the number of nodes. In the paper, some channels are orphans, which only their owner can poll (§4). Here, no channel
  is an orphan.
- A joining node does not take a random id. Its id splits the emptiest part of the id space, which makes the nodes'
  loads more equal.
"""
