"""The polls of a node: their schedule, politeness, concurrency limits, and the comparison of documents.

- ``scheduler``: the time of each poll, and the offers of detected updates to the channels' owners
- ``poller``, ``poll_state``: one poll, and the state of a channel between polls
- ``prober``: requests to URLs that are not polled yet, while a user waits
- ``politeness``, ``concurrency_limits``: limits on requests to publishers, and on work in progress
- ``health_monitor``: records poll results, and proposes notices that a channel is dead, has moved or is back
- ``websub``: subscriptions at hubs that push changes
"""
