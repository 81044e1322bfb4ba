"""Backup of the store: reads its durable keys while programs run, and writes them to another store.

The durable keys are listed in :mod:`service.store.client.keys`. All other keys are soft state: ``restoration`` derives
them from the durable keys (the channel index, for example), or running programs write them again.

A backup is not a snapshot of one moment, because a Redis Cluster cannot be read at one moment. Four rules ensure that a
restored store nevertheless keeps the guarantees (docs/guarantees.md):

- The keys of one user are read at one moment, and so are the keys of one channel.
- No subscriber misses a version or gets it twice. A *fan-out* queues a version of a channel for all its subscribers.
  The *user index* is the list of a user's subscriptions, with the last version that was queued for each. The export
  first reads the last version of each channel whose fan-out was complete, then the users, then the channels. After the
  restoration, each channel fans out all later versions again, and the user index prevents duplicates. A channel is read
  after its subscribers, so it has every version to which a user index refers.
- The *channel index*, the list of each channel's subscribers, is not read, because parts of it move from key to key. It
  is derived from the user index, which is authoritative.
- Other keys that refer to users or channels, such as positions in streams, are read before the users and the channels.

A backup contains every change that was acknowledged before it began, and may contain changes that are made meanwhile.
"""
