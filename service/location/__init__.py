"""Probabilistic location: attenuated Bloom filters that lead a query to a near copy of a document.

A pure package: no clock, randomness or I/O; round-trip times are arguments. Events in, messages out.

Rhea and Kubiatowicz §II: each node has, for each neighbour link, an *attenuated Bloom filter* of d rows. Row i is the
union of the Bloom filters of the nodes that are i hops away through that link. A *query* goes to the nearest neighbour
among those that match in the first row in which any does, and never goes back. It ends at the document, or fails where
nothing matches; a deterministic algorithm is then used instead. When a document is added or removed, bits change, and
an *update* propagates them, one row deeper per hop, up to row d.

- ``bloom_filters``  Bloom filters: hashing, shapes, a node's counting filter, a link's attenuated filters
- ``query_routing``  the neighbour to which a query goes next
- ``messages``       the messages between nodes, their encoding, and ordered streams of batches
- ``location_node``  a node: documents, links and messages in, messages out
- ``neighbour_choice``  the choice of neighbours by measured round-trip times, without a centre
- ``content_cache``  channel contents, the documents that are located, and a worker's cache of them

Filters are Python integers: rows are read, united and compared whole, five to ten times faster than numpy arrays of
this size. Invariants hold once no messages are in transit: a node has each document at distance i ≤ d in row i of one
link (without filtering of updates, of all links that lead there), and it has nothing in row i to which no path of i
hops leads. ``location_node`` lists the deviations from the paper.
"""
