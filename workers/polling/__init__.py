"""The polls of a node: their schedule, the limits on them, and the comparison of documents.

- ``poll_scheduler``: starts each poll, and passes detected changes to the channels' owners
- ``due_queue``: a priority queue of channels (feeds and pages), ordered by due time
- ``poller``: runs one poll
- ``poll_state``: the state of a channel between polls
- ``publisher_requests``: requests for documents
- ``feed_archives``: requests for archives, which contain entries that polls have missed
- ``websub_subscriber``, ``websub_pushes``: subscriptions at WebSub hubs, and the documents that hubs push
- ``politeness``: limits on requests to publishers
- ``concurrency_limits``: limits on how much work is in progress at once
- ``channel_health_monitor``: records poll results, and proposes notices, for example that a channel is dead
"""
