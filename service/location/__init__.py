"""Probabilistic location: routing of queries to a near copy of a document by attenuated Bloom filters.

A pure package: no clock, randomness or I/O; round-trip times are arguments. Events in, messages out.

Rhea and Kubiatowicz §II: each node has, for each neighbour link, an *attenuated Bloom filter* of d rows. Row i is the
union of the Bloom filters of the nodes that are i hops away through that link. A node forwards a *query* to a neighbour
whose filter matches in the lowest row, the nearest one if there are several, and never to a node that the query has
visited. The query ends at a node with the document, or fails at a node where no filter matches; a deterministic
algorithm is then used instead. When a document is added or removed, an *update* propagates the changed bits, one row
deeper per hop, up to row d.

- ``bloom_filters``  Bloom filters: hashing, shapes, a node's counting filter, a link's attenuated filters
- ``query_routing``  the neighbour to which a query goes next
- ``messages``       the messages between nodes, their encoding, and ordered streams of batches
- ``location_node``  a node: documents, links and messages in, messages out
- ``neighbour_choice``  the choice of neighbours by measured round-trip times, without a centre
- ``content_cache``  channel contents, the documents that are located, and a worker's cache of them

Filters are Python integers: rows are read, united and compared whole, five to ten times faster than numpy arrays of
this size. Once no messages are in transit, row i of a node's filters contains each document at distance i ≤ d, in one
link (without filtering of updates, in all links that lead to the document), and no document to which no path of i hops
leads. ``location_node`` lists the deviations from the paper.
"""
