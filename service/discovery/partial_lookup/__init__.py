"""Partial lookup: a directory whose clients need only some of its entries, no matter which (Sun, Garcia-Molina, §2-6).

The directory is stored on several servers, by one of five strategies. Partial storage saves space and messages. In
return, some lookups contact several servers, answers are less varied, and some entries may be unavailable.

The strategies, for n servers:

- *Full replication*: every server has all entries.
- *Fixed-x*: every server has the same x entries.
- *RandomServer-x*: each server has x random entries.
- *Round-Robin-y*: entry i is on y successive servers, beginning with server i (modulo n).
- *Hash-y*: each entry is on the servers that y hash functions select for it.

This package is pure: it has no clock, randomness or I/O. A *server* is a state machine, which gets requests of clients
and messages of other servers. It returns messages, which the caller delivers. Random numbers are arguments, uniform in
[0, 1).

Modules:

- ``strategies``: the five strategies as values, and their costs by the paper's formulas
- ``strategy_choice``: the rules that choose a strategy, and the coordinator of a directory
- ``servers``: the server of each strategy, and the messages (Sun & Garcia-Molina §3, §5)
- ``lookup_client``: which servers a client asks, and in what order
- ``node_shares``: the parts of directories that a node stores, and the messages between nodes
- ``placement_metrics``: the metrics of §4, as exact means

Deviation from the paper: a client that adds an entry must know that it is absent, and a client that deletes an entry
must know that it is present. The paper's ``add`` is a union, for which RandomServer-x and Round-Robin-y would have to
query every server. A client that violates this rule wastes storage, and some entries are then returned more often than
others. Deleted entries are never returned.

Details that only the paper's extended version specifies are our own design, and are marked as such.
"""
