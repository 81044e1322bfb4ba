"""The owner role of a node: versions of its channels, their fan-out, and their registration in the directory.

- ``channel_ownership``: takes over channels, stores their versions, and moves channels to other URLs
- ``registry_reader``: finds the channels that the node owns
- ``dormancy``: which channels without subscribers are still polled
- ``fanout``: queues versions for all subscribers, alone or with other workers
- ``saved_search_alerts``: queues new entries for the owners of saved searches
- ``directory_registration``: registers channels in the directory, by which searches find them
"""
