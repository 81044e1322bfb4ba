"""Delivery of the users' outboxes: decides which items are sent to whom and when, sends and resends them.

A user's *outbox* is the queue of items that are still to be sent. An *item* refers to changes of one channel. To
*claim* items is to move them from the outbox into a *batch*, which is sent as one message and is *in flight* until it
is complete.

- ``outbox_consumer``: handles events, and starts *bursts*, which send to users who are due; the interface for the bot
- ``scheduler``: decides about the order of users, without I/O; with ``message_rate_limit``, ``bounce_backoff`` (which
  also suspends users whose messages have bounced for 14 days) and ``resend_policy``
- ``batch_sender``: takes the steps of a burst: recover, select, defer, claim, correct, render, send, record
- ``mutes_and_filters``, ``notification_intervals``: select the queued items that may be sent now
- ``recipient_availability``: applies quiet hours, digests and presence
- ``recipient_cache``, ``receipt_tracker``: keep users' settings, and track receipts of their clients (XEP-0184)
- ``corrections``: finds the earlier message that a batch of edits replaces (XEP-0308)
- ``batch_renderer``: writes the content of messages: ``notification_text`` at one of the ``detail_levels``, and a
  ``link_preview``
"""
