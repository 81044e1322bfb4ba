"""Backup of the store: reads its durable keys while Coronet is running, and writes them to another store.

:mod:`service.store.client.keys` lists the durable keys. Other keys are not backed up: the restoration derives them from
the durable keys, or Coronet's processes write them again when they run. A backup contains every change that was
acknowledged before the backup began. It may also contain later changes.

A backup is not a snapshot of a single moment, because a Redis Cluster cannot be read in one atomic step. Four rules
ensure that a restored store keeps the guarantees (docs/guarantees.md):

1. All keys of one user are read atomically. So are all keys of one channel.
2. Channels are read after their subscribers. A channel's data therefore includes every version that its subscribers'
   data refer to.
3. The lists of channels' subscribers are not read, because parts of them may move between keys during the backup. The
   restoration derives them from the users' own lists of subscriptions, which are authoritative.
4. Other keys that refer to users or channels, such as positions in streams, are read before all users and channels.

After a restoration, no subscriber misses a version or gets it twice. Each backup begins by recording, for each channel,
the last version that was queued for all subscribers. After the restoration, all later versions are queued again. This
causes no duplicates, because each user's list of subscriptions records the last version that was queued for the
user.
"""
