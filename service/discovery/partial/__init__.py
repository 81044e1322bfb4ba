"""Partial lookup: a directory whose clients want t of its entries, whichever (Sun and Garcia-Molina, §2-6).

A pure room: no clock, randomness or I/O. A *server* is a state machine: requests of clients and messages of other
servers in, messages out; whoever drives it delivers them. Random numbers are arguments, uniform in [0, 1).

n servers keep h entries, by one strategy per directory: all of them have everything (*full replication*) or the same x
entries (*Fixed-x*), each has x of its own (*RandomServer-x*), entry i is on y servers from the i-th on
(*Round-Robin-y*), or where y hash functions say (*Hash-y*). What is saved is storage and messages; what it costs is
that some lookups ask several servers, that answers are less varied, and that some entries may not be had at all.

- ``strategies``  the five as values, their costs by the paper's formulas, and the cushion for deletes (§6.2)
- ``servers``     the messages, the server of each strategy (§3, §5), and the client that asks them
- ``choosing``    the rules of thumb, and the coordinator of a directory
- ``share``       a node's shares of directories, and the letters between nodes
- ``metrics``     the six metrics (§4), as exact means

We deviate: who adds an entry must know that it is not there, and who deletes one that it is. The paper's ``add`` is a
union, which RandomServer-x and Round-Robin-y could not tell without asking everyone. Doing otherwise costs storage
and evenness; what was deleted is never returned.
We deviate: details that only the paper's extended version has are ours; each is said where it is.
"""
