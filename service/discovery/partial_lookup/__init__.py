"""Partial lookup: a directory whose clients need only some of its entries, no matter which (Sun, Garcia-Molina, §2-6).

The directory is stored on several servers, by one of five strategies. If each server stores only a part, this saves
space and messages. In return, some lookups contact several servers, answers are less varied, and some entries may be
unavailable.

The strategies, for n servers:

- *Full replication*: every server has all entries.
- *Fixed-x*: every server has the same x entries.
- *RandomServer-x*: each server has x random entries.
- *Round-Robin-y*: entry i is on y successive servers, beginning with server i (modulo n).
- *Hash-y*: y hash functions select the servers for each entry.

This package is pure: it uses no clock, no source of randomness and no I/O. A *server* is a state machine that receives
requests from clients and messages from other servers. It returns messages, which the caller delivers. Random numbers,
uniform in [0, 1), are passed as arguments.

Modules:

- ``strategies``: the five strategies as values, and the paper's formulas for their costs
- ``strategy_choice``: the rules that choose a strategy, and the coordinator of a directory
- ``servers``: the server of each strategy, and the messages (Sun & Garcia-Molina §3, §5)
- ``lookup_client``: which servers a client queries, and in what order
- ``node_shares``: the parts of directories that a node stores, and the messages between nodes
- ``placement_metrics``: the metrics of §4, as exact means

Deviation from the paper: a client may add only absent entries, and delete only present ones. In the paper, an entry
that is already present may be added again. To support this, RandomServer-x and Round-Robin-y would have to query every
server. If a client violates this rule, storage is wasted, and some entries are returned more often than others. Deleted
entries are never returned.

Where the paper leaves a detail to its extended version, we use our own design, and mark it as such.
"""
