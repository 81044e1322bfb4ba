"""Distribution of subscriptions over *keyspaces* (partitions of the store) by the CLASH protocol (paper, §III-V).

Each subscription has a key of N bits. Related subscriptions, such as those to one channel, have keys with a common
prefix. A *key group* of depth d consists of all keys that begin with the same d bits; each group is assigned to one
keyspace. A group that is too busy is split into two halves, and two quiet halves are merged again. The package has no
clock, randomness or I/O.

- ``key_groups``    keys, key groups, and the keyspace of a group
- ``server_table``  the table of one keyspace's groups, and how it is stored in a Redis hash
- ``table_transitions``  the effects of splits and merges on a table, and replies to clients
- ``move_steps``    the steps of a split or merge between two keyspaces, and their order
- ``group_search``  a client's search for the group of a key, and its cache of groups
- ``prefix_query``  subscription records, and paged queries for all records under a prefix
- ``split_merge_policy``  the load of a group, and the choice of groups to split and merge

How groups are assigned: a group's *virtual key* is its prefix of d bits, padded with zeros to N bits. The SHA-1 hash of
the virtual key determines the keyspace (a server in the paper). The groups in use are the leaves of a binary tree, so
each key is in exactly one of them. A split adds one bit to the prefix. The left half keeps its virtual key and
therefore its keyspace; the right half gets another virtual key. No process knows the whole tree. Each keyspace knows
its own groups, and clients search for the depth of a key's group. ``workers.key_group_balancer`` decides on splits and
merges, and scripts in the store carry them out.

Deviations from the paper:

- *Groups move while they are in use*; the paper does not say how state is transferred. One write commits a move. From
  then on, the receiving keyspace accepts the group's keys, and the former keyspace redirects clients to it. The client
  presents the move to the new keyspace as a *proof* that the group was given away. The records follow in pages. Each
  record has a sequence number, so that the newer of two versions is known (docs/decisions/0018).
- The *prefix match* of a key is the largest number of leading bits that it shares with any group of the table. Groups
  that are being returned in a merge are ignored, because counting them would violate Theorem 1 (§V.B). Bits beyond a
  group's depth are ignored as well. In a table without groups, the prefix match is -1, so that Theorem 1 allows any
  depth, including 0, the depth of the root.
- For a merge, the keyspace of the undivided group asks the right half's keyspace to return the right half. That
  keyspace may decline. In the paper, the server of the right half announces the merge instead.
"""
