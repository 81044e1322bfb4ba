"""Key groups (CLASH): subscriptions are distributed over keyspaces in groups that split when hot and merge when cold.

A pure package: no clock, randomness or I/O; loads and answers are arguments. The store's scripts carry out its
transitions, and ``workers.key_group_balancer`` its decisions.

Load-aware hashing (CLASH §III-V): an identifier key has N bits, ordered by significance so that subscriptions that
belong together share a prefix. The first d bits of a key, padded with zeros, are the *virtual key* of a *key group* of
depth d; SHA-1 and the paper's function Map assign a *keyspace* (a server in the paper) to each virtual key. The active
groups are the leaves of a binary tree, so each key is in exactly one active group. A split adds a bit: the left child
keeps its virtual key and therefore its keyspace, the right child's is computed anew. No process knows the whole tree:
each keyspace has a ``ServerTable`` of its own groups, and clients search for depths.

- ``key_groups``    identifier keys, key groups, and the map from a virtual key to its keyspace
- ``server_table``  a keyspace's table, and its form in a Redis hash
- ``table_transitions``  splits, merges and AcceptObject as transitions of tables, each a script in one keyspace's slot
- ``move_steps``    the steps of a split or merge between two keyspaces, and their order
- ``group_search``  the client's search for a key's leaf group, and its cache of leaf groups
- ``prefix_query``  subscription records, and queries for those under a prefix, page by page
- ``split_merge_policy``  the load of a group, and which groups to split and merge

Deviation: *moves are live* (the paper leaves the transfer of state open). A keyspace gives a group away in one write,
which commits the move. From then on, the keyspace that receives the group accepts its keys. A client that still asks
the former keyspace is redirected, and presents the move to the new one as a *proof* that the group was given away.
Nothing is frozen and no write is refused. The records that were written before the commit follow in pages; each has a
number that tells which of two versions is newer (docs/decisions/0018).

Deviation: a *prefix match*, the number of leading bits that a key shares with the groups of a table, ignores groups
that are being returned in a merge, because to count them would violate Theorem 1 (§V.B). It also ignores bits beyond a
group's depth. For a table without groups it is -1, because the root has depth 0.

Deviation: for a merge, the parent's keyspace asks the right child's keyspace to return the right child, and that
keyspace may decline. In the paper, the child's server announces the merge.
"""
