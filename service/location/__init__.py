"""Search for a near copy of a document by probabilistic location (Rhea and Kubiatowicz §II).

Each node summarises, for each neighbour, which documents can be reached through it, as Bloom filters (sets with false
positives). A query follows these filters from node to node. The package has no clock, randomness or I/O: round-trip
times are arguments.

1. Each node has, for each neighbour link, an *attenuated Bloom filter* of d rows. Row i is the union of the Bloom
   filters of the nodes that are i hops away through that link.
2. A node forwards a query to the neighbour whose filter matches in the lowest row, or to the nearest of several such
   neighbours. A query never visits a node twice.
3. The query ends at a node with the document, or fails at a node where no filter matches. A deterministic algorithm is
   then used instead.
4. When a document is added or removed, an *update* propagates the changed bits, one row deeper per hop, up to row d.

- ``bloom_filters``  Bloom filters: hashing, sizes, a node's counting filter, a link's attenuated filters
- ``query_routing``  the neighbour to which a query goes next
- ``messages``       the messages between nodes, their encoding, and ordered streams of batches
- ``location_node``  a node: documents, links and messages in, messages out; lists the deviations from the paper
- ``neighbour_choice``  the choice of neighbours by measured round-trip times, without a central server
- ``content_cache``  channel contents, the documents that are located, and a worker's cache of them

Invariant: once no messages are in transit, row i contains each document at distance i ≤ d. The document is in the
filter of one link only; if updates are not filtered, it is in the filters of all links that lead to it. A document to
which no path of i hops leads is not in row i.

Why filters are Python integers: rows are read, united and compared whole, five to ten times faster than numpy arrays of
this size.
"""
