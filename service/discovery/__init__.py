"""Content discovery: content names of channels and entries, queries, and load-balancing matrices that match them.

A pure package: no clock, randomness or I/O; time and random numbers are arguments. The store's cells implement the
commands of ``matrix_cell``, and ``service.store.directory`` runs the protocols.

Gao & Steenkiste: a *content name* is a set of AV-pairs, and a query matches by subset. Each pair has a *matrix* of P
partitions and R replicas of *cells*, the rendezvous points H(pair, p, r). A name is registered with each of its pairs,
in one partition, in all replicas; a query is sent to one pair's matrix, to one replica of each partition. Matrices grow
by doubling where cells are overloaded, and shrink by one; their *head node*, cell (0,0), keeps the size and serialises
changes. All state is soft: refreshed, and expiring. Here a cell is a Redis key whose hash tag is the cell's address, so
that Redis Cluster is the DHT below; workers do what a head node does.

- ``av_pairs``, ``content_names``  AV-pairs, and the content names of channels and entries
- ``queries``               queries: their conditions and grammar; saved searches
- ``word_analysis``         text analysis: folded words, common words, stems, the language of a text
- ``text_search``           text search: stems, similar words, relevance, snippets
- ``channel_visibility``    which channels may be found by people who are not subscribed to them
- ``channel_description``   a channel's content name and the text by whose words it is found
- ``search_policy``         the number of names that a search requests, and the results that it may show
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

Deviation: *nothing is locked and nothing is refused* while a matrix changes. Records are merged (the newer one stays),
cells accept only later epochs, and a client that finds a cell in another state than expected is redirected by the
cell's answer; any step may be repeated, arrive late or be the last (docs/decisions/0023).
"""
