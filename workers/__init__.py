"""The polling workers: they run nodes, which poll feeds and pages, store the changes and deliver them to subscribers.

The nodes of all workers form a ring and share the polls by Corona's protocol. For each channel (a feed or page), the
node nearest to its id is the owner, which stores its versions.

- ``main``, ``node``: the worker program, and one node of it
- ``ring_membership``: joining the ring, renewal of the lease, and joining again after its loss
- ``polling``: the schedule of polls, limits on them, and the polls themselves
- ``ownership``: the versions of a node's own channels, their delivery, and their registration in the directory
- ``request_handlers``: handlers of the requests of bots and the console
- ``in_memory_directories``: a node's part in the search directory (partial lookup)
- ``key_group_balancer``: a node's part in load balancing (CLASH)
- ``peers``: the exchange of data and messages with other workers

``node`` is the only importer of apscheduler. ``workers`` never imports ``bots``.
"""
