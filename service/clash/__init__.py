"""Distribution of subscriptions over *keyspaces* (partitions of the store) by the CLASH protocol (paper, §III-V).

Each subscription has a key of N bits, ordered so that subscriptions that belong together share a prefix. A *key group*
of depth d is all keys that begin with the same d bits; it is assigned to one keyspace. A group that is too busy is
split into two, and two quiet halves are merged again. The package has no clock, randomness or I/O.

- ``key_groups``    keys, key groups, and the keyspace of a group
- ``server_table``  the table of the groups of one keyspace, and its form in a Redis hash
- ``table_transitions``  the effects of splits and merges on a table, and replies to clients
- ``move_steps``    the steps of a split or merge between two keyspaces, and their order
- ``group_search``  a client's search for the group of a key, and its cache of groups
- ``prefix_query``  subscription records, and queries for those under a prefix, page by page
- ``split_merge_policy``  the load of a group, and which groups to split and merge

How groups are assigned: a group's *virtual key* is its first d bits, padded with zeros. SHA-1 and the paper's function
Map assign a keyspace (a server in the paper) to each virtual key. The groups in use are the leaves of a binary tree, so
each key is in exactly one of them. A split adds a bit: the left half keeps its virtual key and its keyspace, the right
half gets another virtual key. No process knows the whole tree. Each keyspace knows its own groups, and clients search
for depths. The store's scripts carry out the steps, and ``workers.key_group_balancer`` decides on them.

Deviations from the paper:

- *Groups move while they are in use*; the paper leaves the transfer of state open. One write commits a move. From then
  on, the receiving keyspace accepts the group's keys, and nothing is frozen or refused. A client that asks the former
  keyspace is redirected. The client then presents the move to the new keyspace as a *proof* that the group was given
  away. The records follow in pages; each has a number that tells which of two versions is newer (docs/decisions/0018).
- The *prefix match* of a key is the number of leading bits that it shares with the groups of a table. The prefix match
  ignores groups that are being returned in a merge, because to count them would violate Theorem 1 (§V.B). The prefix
  match also ignores bits beyond a group's depth. Without any groups, it is -1, because the root has depth 0.
- For a merge, the keyspace of the undivided group asks the right half's keyspace to return the right half. That
  keyspace may decline. In the paper, the server of the half announces the merge.
"""
