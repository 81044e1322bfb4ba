"""The overlay: an id space shared by nodes and channels, and the ring of nodes as every node sees it.

A pure package: no clock, randomness or I/O; equal views give equal answers on all nodes.

Nodes and channels are points of one 160-bit id space (Corona §3, on Pastry). The *owner* of a channel is the node
nearest to its id by XOR, and its *polling set* of size n are the n nearest nodes. A wedge of the paper (all nodes that
share l digits with the channel) is exactly such a set, so prefix routing still works.

Deviation: distance is XOR, not numeric distance on the ring, because then every n has a polling set, the four nearest
nodes always exist, and there are no orphans (§4). Deviation: a joining node takes the id that splits the emptiest part
of the id space instead of a random one, which makes the nodes' loads more equal.
"""
