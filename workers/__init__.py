"""The polling workers: nodes that run Corona's protocol, poll publishers, store versions and fan them out.

- ``main``, ``node``: the worker program, and one node from joining the ring to losing its lease
- ``ring_membership``: joining the ring, renewal of the lease, and joining again after its loss
- ``polling``: the schedule of polls, politeness, concurrency limits, and the polls themselves
- ``ownership``: the versions of a node's own channels, fan-out, and registration in the directory
- ``request_handlers``: handlers of the requests of bots and the console
- ``in_memory_directories``, ``key_group_balancer``: a node's part in partial lookup and in CLASH
- ``peers``: the exchange of contents, and of messages between nodes, with other workers

``node`` is the only importer of apscheduler. ``workers`` never imports ``bots``.
"""
