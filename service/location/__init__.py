"""Search for a nearby copy of a document by probabilistic location (Rhea and Kubiatowicz §II).

For each neighbour, a node stores Bloom filters (sets with false positives) of the documents that can be reached through
that neighbour. A query follows these filters from node to node. The package uses no clock, randomness or I/O:
round-trip times are passed as arguments.

1. Each node has, for each link to a neighbour, an *attenuated Bloom filter* with d rows. Row i is the union of the
   Bloom filters of the nodes that are i hops away through that link.
2. A node forwards a query to the neighbour whose filter matches in the lowest row. If there are several, it chooses the
   nearest of them. A query never visits a node twice.
3. The query succeeds at a node that has the document, and fails at a node where no filter matches. If it fails, a
   deterministic algorithm is used instead.
4. When a document is added or removed, an *update* propagates the changed bits, one row deeper per hop, up to row d.

The modules:

- ``bloom_filters``: Bloom filters, that is, hashing, sizes, a node's counting filter, and a link's attenuated filters
- ``query_routing``: the neighbour to which a query goes next
- ``messages``: the messages between nodes, their encoding, and ordered streams of batches
- ``location_node``: a node, which processes messages and changes; lists the deviations from the paper
- ``neighbour_choice``: the choice of neighbours by measured round-trip times, without a central server
- ``content_cache``: channel contents (the documents that are located), and a worker's cache of them

Invariant: once no messages are in transit, a document at distance i ≤ d is in row i of a filter. If redundant updates
are dropped, it is in the filter of one link only; otherwise it is in the filters of all links that lead to it. Row i
contains only documents to which a path of i hops leads.

Filters are Python integers because rows are read, united and compared as a whole. For these operations, integers are
five to ten times as fast as numpy arrays of the same size.
"""
