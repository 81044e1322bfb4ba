"""Partial lookup: a directory whose clients need only some of its entries, no matter which (Sun, Garcia-Molina, §2-6).

A pure package: no clock, randomness or I/O. A *server* is a state machine: it gets requests of clients and messages of
other servers, and returns messages, which the caller delivers. Random numbers are arguments, uniform in [0, 1).

A directory of h entries is stored on n servers, by one of five strategies. With *full replication* every server has all
entries, and with *Fixed-x* every server has the same x. With *RandomServer-x* each has x random ones. With
*Round-Robin-y* entry i is on y successive servers from the i-th on. With *Hash-y* each entry is on the servers that y
hash functions select for it. Partial storage saves space and messages; in return, some lookups contact several servers,
answers are less varied, and some entries may be unavailable.

- ``strategies``         the five strategies as values, their costs by the paper's formulas, and the cushion (§6.2)
- ``strategy_choice``    the rules of thumb that choose a strategy, and the coordinator of a directory
- ``servers``            the messages, and the server of each strategy (§3, §5)
- ``lookup_client``      the servers that a client asks, and in what order
- ``node_shares``        a node's shares of directories, and the messages between nodes
- ``placement_metrics``  the metrics of §4, as exact means

Deviation: a client that adds an entry must know that it is absent, and a client that deletes an entry must know that it
is present. The paper's ``add`` is a union, for which RandomServer-x and Round-Robin-y would have to query every server.
A violation costs storage and makes answers less even; deleted entries are never returned.

Details that only the paper's extended version specifies are our own design, and are marked as such.
"""
