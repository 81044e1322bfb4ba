"""WHERE a copy is near: attenuated Bloom filters, which lead a query to it, and tell soon that there is none.

A pure room: no clock, randomness or I/O; round-trip times are arguments. Events in, what is to be sent out.

Probabilistic location (Rhea and Kubiatowicz §II): each node has, for each neighbour, an *attenuated Bloom filter* of d
rows. Row i is the union of the Bloom filters of the nodes i hops away through that neighbour. A *query* goes to the
nearest neighbour among those that match in the first row where any does, and never back; it ends at the document, or
where nothing matches, and then a deterministic way takes over. A document that comes or goes flips bits, and an
*update* carries these outward, one row deeper per hop, until row d.

- ``bloom``       stable hashing, the filters' shape and size, a node's own filter, which counts and so can forget, and
                  the rows heard from each neighbour and told to it; a query's next hop
- ``wire``        what nodes say to each other, and its bytes
- ``protocol``    a node: documents, links and messages in, messages out
- ``neighbours``  who is whose neighbour, by measured round-trip times, without a centre

Filters are Python's integers: a row is read, united and compared whole, five to ten times faster than as numpy arrays
of this size. Laws: a quiet node has each document at distance i ≤ d in row i of one link (of all ways there, without
filtering), and nothing that no way of i hops leads to. Where we deviate from the paper stands in ``protocol``.
"""
