"""Backup of the store: reads its durable keys while programs run, and writes them to another store.

The durable keys are listed in :mod:`service.store.client.keys`. All other keys are soft state: ``restoration`` derives
them from the durable keys (the channel index, for example), or running programs write them again.

A backup is no snapshot of one moment, because a Redis Cluster has none. Four rules make it consistent enough that a
restored store keeps the guarantees (docs/guarantees.md):

- The keys of one user are read at one moment, and so are the keys of one channel.
- A *fan-out* queues a version of a channel for all its subscribers. The reader first reads the last version of each
  channel whose fan-out was complete, then the users, then the channels. A restored channel fans out all later versions
  again. No subscriber gets a version twice, because the *user index*, the list of a user's subscriptions, records the
  last version that was queued for each. No user index refers to a version that its channel does not have yet.
- The *channel index*, the list of each channel's subscribers, is not read, because parts of it move from key to key. It
  is derived from the user index, which is authoritative.
- Other keys that refer to users or channels, such as positions in streams, are read before the users and the channels.

A backup contains every change that was acknowledged before it began, and may contain changes that are made meanwhile.
"""
