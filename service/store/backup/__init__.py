"""Backup of the store: reads its durable keys while programs run, and writes them to another store.

The durable keys are listed in :mod:`service.store.client.keys`. All other keys are soft state: ``restoration`` derives
them from the durable keys (the channel index, for example), or running programs write them again.

A backup is no snapshot of one moment, because a Redis Cluster has none. Four rules make it consistent enough that a
restored store keeps the guarantees (docs/guarantees.md):

- The keys of one user are read at one moment, and so are the keys of one channel.
- First, the progress of each channel's fan-out is read, then the users, then the channels. A restored channel continues
  its fan-out from that progress. A version that was queued for some subscribers only is therefore queued for the
  others, and for nobody twice, because the user index records the last version that was queued for each subscriber.
  No user index refers to a version that its channel does not have yet.
- The channel index, which moves between keyspaces, is not read. It is derived from the user index, which is
  authoritative.
- Streams and positions that refer to users or channels are read before them.

A backup contains every change that was acknowledged before it began, and may contain changes that are made meanwhile.
"""
