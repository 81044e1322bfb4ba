"""WHO is where: a flat, shared view of the ring of nodes, and what follows from it.

A pure room: no clock, no randomness, no I/O; the same view gives the same answers everywhere.

Nodes and channels are points of one 160-bit id space (Corona §3, on Pastry). The *owner* of a
channel is the node nearest to its id by XOR, and its *polling set* of size n are the n nearest.
A wedge of the paper (all nodes sharing l digits with the channel) is exactly such a set, so
prefix routing still works.

We deviate: nearness is XOR, not numeric distance on the ring, because then any n has a set, four
nearest always exist, and there are no orphans (§4). We deviate: a joining node takes the id that
splits the emptiest part of the space instead of a random one, because it evens out the load.
"""
