"""Content discovery: finding channels and entries by their attributes and words (Gao & Steenkiste).

An *AV-pair* is an attribute with a value, such as ``tag=python``. A *content name* is the set of AV-pairs of a channel
or entry. A query is also a set of AV-pairs, and matches the names that contain all of them. This package is pure: it
uses no clock, randomness or I/O.

Names are stored as follows:

- Each AV-pair has a *matrix*, a table of *cells* with P partitions (columns) and R replicas (rows).
- The cell in partition p and replica r, a *rendezvous point* in the paper, has the address H(pair, p, r).
- A name is registered in the matrix of each of its pairs: in all replicas of one partition.
- A query is sent to the matrix of one of its pairs: to one replica of every partition.
- An overloaded matrix doubles its partitions or replicas. A matrix with little load removes them one by one.
- The *head node* of a matrix, cell (0,0), stores the matrix's size and makes one change at a time.
- Names and sizes expire unless they are refreshed.

A cell is stored as a field of a Redis hash. A cell with many postings (records of names) has its own Redis hash. Each
cell's address determines a bucket, which many cells share. The bucket is the hash tag of the Redis key, so Redis
Cluster takes the place of the paper's distributed hash table (DHT). Workers do the work of head nodes.

Modules:

- ``av_pairs``, ``content_names``: AV-pairs, and the content names of channels and entries
- ``queries``: parsed queries, their grammar, and saved searches
- ``word_analysis``: words and stems of a text, and its language
- ``text_search``: relevance, similar words and snippets
- ``channel_visibility``: which channels can be found by people who are not subscribed to them
- ``channel_description``: a channel's content name, and its searchable text
- ``discover_listings``: listings of popular and new channels, without a query
- ``search_candidates``: requests to a directory, and its answers
- ``matrix``: addresses, sizes and partitions; the head node's record
- ``matrix_cell``: the commands to one cell and their effects
- ``cell_rounds``: how protocols send commands to cells, and how they find a matrix's size
- ``postings``: a cell's records of names
- ``matrix_registration``: registration and withdrawal of a name
- ``matrix_search``: queries, which merge the records of several cells
- ``matrix_resize_policy``: when to resize a matrix
- ``matrix_resizing``: how a matrix is resized
- ``partial_lookup``: directories in the memory of several servers

``service.store.directory`` runs the protocols, and the store implements the commands to cells.

Deviation from the paper: while a matrix changes size, *no lock is taken, and all requests are still served*. If there
are two records of the same name, the newer one is used. Each change of a matrix gets a sequence number, the *epoch*,
and a cell accepts only epochs later than its own. If a cell is not in the state that the client expected, its answer
tells the client how to continue. Any step may therefore be repeated or arrive late, and a client may stop after any
step (docs/decisions/0023).
"""
