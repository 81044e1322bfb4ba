"""The polling workers: they run nodes, which poll feeds and pages, store the changes and deliver them to subscribers.

The nodes of all workers form a ring and share the polls using Corona's protocol. For each channel (a feed or page), the
node nearest to the channel's id is the owner, which stores the channel's versions.

- ``main``, ``node``: the worker program, and one node in it
- ``ring_membership``: joining the ring, renewing the lease, and rejoining after the lease is lost
- ``polling``: the schedule of polls, limits on them, and the polls themselves
- ``ownership``: storing the versions of a node's own channels, delivering them, and registering them in the directory
- ``request_handlers``: handlers of requests from bots and the console
- ``in_memory_directories``: a node's part in the search directory (partial lookup)
- ``key_group_balancer``: a node's part in load balancing (CLASH)
- ``peers``: the exchange of data and messages with other workers

Only ``node`` imports apscheduler. ``workers`` never imports ``bots``.
"""
