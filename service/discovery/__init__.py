"""Content discovery: content names of channels and entries, queries, and load-balancing matrices that match them.

A pure package: no clock, randomness or I/O; time and random numbers are arguments. The store's cells implement the
commands of ``matrix_cell``, and ``service.store.directory`` runs the protocols.

Terms of Gao & Steenkiste: a *content name* is a set of AV-pairs (attribute and value). A query is a set of AV-pairs,
too, and matches the names that have all of them. Each AV-pair has a *matrix* of *cells*, with P partitions (columns)
and R replicas (rows). The cell of partition p and replica r is stored at the address H(pair, p, r), its rendezvous
point. A name is registered in the matrix of each of its pairs: in all replicas of one partition. A query is sent to the
matrix of one of its pairs: to one replica of every partition. An overloaded matrix doubles its partitions or its
replicas; one with little load removes them one by one. Its *head node*, cell (0,0), keeps the size and makes one change
at a time. All state is soft: it expires unless refreshed.

Here a cell is a field of a Redis hash, or a hash of its own if it has many postings. The hash tag is a bucket of many
cells, to which the cell's address leads, so Redis Cluster takes the place of the paper's DHT. Workers do the work of
head nodes.

- ``av_pairs``, ``content_names``  AV-pairs, and the content names of channels and entries
- ``queries``               queries: their conditions and grammar; saved searches
- ``word_analysis``         text analysis: folded words, common words, stems, the language of a text
- ``text_search``           text search: stems, similar words, relevance, snippets
- ``channel_visibility``    which channels may be found by people who are not subscribed to them
- ``channel_description``   a channel's content name and the text by whose words it is found
- ``discover_listings``     listings of popular and new channels, without a query
- ``search_candidates``     requests to a directory (clauses of weighted AV-pairs), and its answers
- ``matrix``                addresses, sizes and partitions; the head's record and its transitions
- ``matrix_cell``           the commands of one cell and their effects
- ``cell_rounds``           protocols that send commands to cells in rounds; finding a matrix's size
- ``postings``              the records that a cell stores about names: key, weight and expiry
- ``matrix_registration``   the protocols of registrations and withdrawals
- ``matrix_search``         the protocol of queries, which merges the postings of cells
- ``matrix_resize_policy``  decisions to resize a matrix by the loads of cells and nodes; nodes for replicas
- ``matrix_resizing``       the protocol that makes cells match the head's record
- ``partial_lookup``        partial lookup: a directory kept in several servers' memory

Deviation: *nothing is locked and nothing is refused* while a matrix changes. Of two records of a name, the newer one
stays. Changes of a matrix are numbered by *epochs*, and a cell accepts only later epochs than its own. If a client
finds a cell in another state than expected, the cell's answer tells the client how to continue. Any step may therefore
be repeated or arrive late, and a client may stop after any step (docs/decisions/0023).
"""
