"""Backup of the store: reads its durable keys while programs run, and writes them to another store.

:mod:`service.store.client.keys` lists the durable keys. The other keys are not read: the restoration derives them from
the durable ones, or running programs write them again. A backup contains every change that was acknowledged before the
backup began. It may contain later changes.

A backup is not a snapshot of one moment, because a Redis Cluster cannot be read at one moment. A restored store keeps
the guarantees (docs/guarantees.md) by four rules:

1. All keys of one user are read at one moment. So are all keys of one channel.
2. Channels are read after their subscribers. A channel therefore has every version that a user's data mentions.
3. The lists of channels' subscribers are not read, because parts of them move between keys. They are derived from the
   users' own lists of subscriptions, which are authoritative.
4. Other keys that mention users or channels, such as positions in streams, are read before both.

No subscriber misses a version or gets it twice. The backup first records which versions of each channel were queued for
all subscribers. After the restoration, all later versions are queued again. Each user's list of subscriptions has the
last version queued for it, which prevents duplicates.
"""
