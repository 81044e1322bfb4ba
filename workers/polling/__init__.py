"""The polls of a node: their schedule, politeness, concurrency limits, and the comparison of documents.

- ``scheduler``: when each channel is polled, and which updates are offered to owners
- ``poller``, ``poll_state``: one poll, and what a node remembers between polls
- ``prober``: requests to URLs that are not polled yet, while a user waits
- ``politeness``, ``concurrency_limits``: limits on requests to publishers, and on work in progress
- ``health_monitor``: records how polls end, and proposes notices that a channel is dead, has moved or is back
- ``websub``: subscriptions at hubs that push changes
"""
