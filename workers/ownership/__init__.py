"""A node's work as the owner of channels (feeds and pages): it stores their versions and delivers them.

The owner of a channel is the node nearest to the channel's id. A version is a numbered set of changes. Fan-out means
queueing a version for all subscribers.

- ``channel_ownership``: takes over channels, stores their versions, and moves channels to other URLs
- ``registry_reader``: finds the channels that the node owns
- ``dormancy``: decides which channels without subscribers are still polled
- ``fanout``: queues versions for all subscribers, alone or with other workers
- ``saved_search_alerts``: queues new entries for the owners of saved searches
- ``directory_registration``: registers channels in the directory, where searches find them
"""
