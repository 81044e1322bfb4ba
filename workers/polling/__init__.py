"""The polls of a node: their schedule, politeness, concurrency limits, and the comparison of documents.

- ``scheduler``: when each channel is polled, and which updates are offered to owners
- ``poller``, ``poll_state``: one poll, and what a node remembers between polls
- ``politeness``, ``concurrency_limits``: limits on requests to publishers, and on work in progress
- ``health_monitor``: reports how polls end, and proposes notices (dead, moved, back)
- ``websub``: subscriptions at hubs that push changes
- ``poll_trace``: the steps of a poll, for the user who requested it
"""
