"""WHERE subscriptions live: key groups in keyspaces, which split when hot and merge when cold.

A pure room: no clock, randomness or I/O; loads and answers are arguments. The store's scripts and keepers follow it.

Load-aware hashing (CLASH §III-V): an identifier key has N bits, the most significant first what subscriptions are to
lie together by. Its first d bits, padded with zeros, are the *virtual key* of a *key group* of depth d; SHA-1 and
Map give the group's *keyspace*. The active groups are the leaves of a binary tree, so each key is in exactly one.
A split adds a bit: the left child keeps its virtual key and so its keyspace, the right child's is drawn anew.
Nobody knows the whole tree: each keyspace has a ``ServerTable`` of its own groups, and clients search for depths.

- ``groups``          identifier keys, groups of keys, and the map from a virtual key to its keyspace
- ``table``           a keyspace's table, and its form in a Redis hash
- ``transitions``     splits, merges and answers as transitions of tables: each is one script in one keyspace's slot
- ``search``          the client's search for the depth and for all leaf groups under a prefix, and what it remembers
- ``walk``            subscriptions as they lie in a keyspace, and prefix queries for them, page by page
- ``policy``          what a group weighs; what a keeper splits and merges
- ``steps``           the steps of a move between two keyspaces, and which follows which

We deviate: *moves are live* (the paper leaves the transfer of state open). A keyspace that gives a group away says so
in one write, which is the move's commit; from then on the taker accepts, and whoever is sent there brings the proof.
Nothing is frozen and no write is refused: what was written before the commit follows in pages, and records say
themselves which of two is newer (docs/decisions/0018).
We deviate: prefix matches do not count groups that are being given back, which would break Theorem 1 (§V.B), nor bits
beyond a group's depth; a table without entries answers -1, because our root has depth 0.
We deviate: a merge is asked of the right child's keyspace, which may decline, instead of being announced by it.
"""
