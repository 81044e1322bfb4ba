"""Backup of the store: reads its durable keys while programs run, and writes them to another store.

Which keys are durable is stated in :mod:`service.store.client.keys`. The rest is soft state, which the writer makes
from the durable keys (the channel index, for example), or the running programs make again.

A backup is no snapshot of one moment, because a Redis Cluster has none. Four rules make it consistent enough that a
restored store keeps the guarantees (docs/guarantees.md):

- The keys of one user are read at one moment, and so are the keys of one channel.
- First, the progress of each channel's fan-out is read, then the users, then the channels. A restored channel continues
  its fan-out from that progress. A version that was queued for some users only is therefore queued for the others,
  and for nobody twice, because the user index records the last version that each user was given. A channel is never
  behind what a user was given.
- The channel index, which moves between keyspaces, is not read. It is made from the user index, which is authoritative.
- Streams and positions that refer to users or channels are read before them.

What was acknowledged before the backup began is in it. What changes during the backup may be in it.
"""
