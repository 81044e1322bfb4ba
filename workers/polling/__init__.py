"""The polls of a node: their schedule, politeness, concurrency limits, and the comparison of documents.

- ``poll_scheduler``: the time of each poll, and the offers of detected updates to the channels' owners
- ``due_queue``: a priority queue of channels by the times at which they are due
- ``poller``, ``poll_state``: one poll and the trace of its steps, and the state of a channel between polls
- ``publisher_requests``, ``feed_archives``: requests for documents, and for archives of entries that polls have missed
- ``websub_pushes``, ``websub_subscriber``: documents that hubs push, and the subscriptions at these hubs (WebSub)
- ``politeness``, ``concurrency_limits``: limits on requests to publishers, and on work in progress
- ``channel_health_monitor``: records poll results, and proposes notices that a channel is dead, has moved or is back
"""
