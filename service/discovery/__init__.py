"""WHAT there is: AV-pairs, content names, queries, and the matrices of cells in which they meet.

A pure room: no clock, randomness or I/O; time and random numbers are arguments. The store's cells do what
``cell`` says, and whoever has business there leads the dialogues.

Content discovery (Gao & Steenkiste): a *content name* is a set of AV-pairs, a query matches by subset. Each pair has a
*matrix* of P partitions and R replicas of *cells*, the rendezvous points H(pair, p, r). A name is registered with each
of its pairs, in one partition, in all replicas; a query is asked of one pair's matrix, one replica of each partition.
Matrices grow where cells carry too much, doubling, and shrink by one; their *head*, cell (0,0), keeps the size and does
one thing at a time. All is soft state: refreshed, and expiring. Here a cell is a Redis key, its hash tag the cell's
address, so that Redis Cluster is the DHT below; the head's upkeep is done by workers.

- ``pairs``, ``names``, ``grammar``  what names and queries are made of, and how people write them
- ``secrecy``, ``standing``          what is nobody else's business; standing queries, found by their rarest pair
- ``results``                        what a search asks for and shows
- ``matrix``                         addresses, sizes and homes; the head's record and its transitions
- ``cell``                           what one cell does: the commands of a store
- ``dialogue``                       what is asked of cells, round by round; the sizes of matrices
- ``finding``, ``upkeep``            the dialogues: registering, queries and listings; what heads want done
- ``partial``                        partial lookup: a directory kept by several servers

We deviate: *nothing is frozen and nothing refused* while a matrix changes. Records are joined (the newer one stays),
cells believe only later epochs, and whoever meets a cell that is not what they thought is sent on by what it answers;
so any step may be repeated, come late or be the last (docs/decisions/0023).
"""
