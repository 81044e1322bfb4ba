"""Partial lookup: a directory whose clients need any t of its entries (Sun and Garcia-Molina, §2-6).

A pure package: no clock, randomness or I/O. A *server* is a state machine: requests of clients and messages of other
servers in, messages out; the caller delivers them. Random numbers are arguments, uniform in [0, 1).

n servers store h entries, by one strategy per directory: every server has all of them (*full replication*) or the same
x entries (*Fixed-x*), each has its own x (*RandomServer-x*), entry i is on y servers from the i-th on
(*Round-Robin-y*), or on those that y hash functions select (*Hash-y*). This saves storage and messages; in return, some
lookups ask several servers, answers are less varied, and some entries may be unavailable.

- ``strategies``         the five strategies as values, their costs by the paper's formulas, and the cushion (§6.2)
- ``strategy_choice``    the rules of thumb that choose a strategy, and the coordinator of a directory
- ``servers``            the messages, the server of each strategy (§3, §5), and the client's lookup
- ``node_share``         a node's shares of directories, and the letters between nodes
- ``placement_metrics``  the metrics of §4, as exact means

Deviation: a client that adds an entry must know that it is absent, and one that deletes it that it is present. The
paper's ``add`` is a union, for which RandomServer-x and Round-Robin-y would have to ask every server. A violation costs
storage and evenness; deleted entries are never returned.

Details that only the paper's extended version specifies are our own; each is stated where it is.
"""
