"""Delivery of the users' outboxes: decides what to send to whom and when, sends it, and resends it if needed.

A user's *outbox* is the queue of items that are still to be sent. An *item* refers to changes in one channel. To
*claim* items is to move them from the outbox into a *batch*, which is sent as one message. From its claim until it is
complete, a batch is *in flight*. A *burst* sends the due messages to a group of users.

- ``outbox_consumer``: the interface for the rest of the bot; handles events and starts bursts
- ``scheduler``: decides the order in which users are served, without I/O; uses ``message_rate_limit``,
  ``bounce_backoff`` (which also suspends users whose messages have bounced for 14 days) and ``resend_policy``
- ``batch_sender``: carries out the steps of a burst: recover, select, defer, claim, correct, render, send, record
- ``mutes_and_filters``, ``notification_intervals``: select the queued items that may be sent now
- ``recipient_availability``: applies quiet hours, digests and presence
- ``recipient_cache``, ``receipt_tracker``: cache users' settings, and track receipts from their clients (XEP-0184)
- ``corrections``: finds the earlier message that a batch of edits replaces (XEP-0308)
- ``batch_renderer``: renders the content of messages; ``notification_text`` writes the text at one of the
  ``detail_levels``, and ``link_preview`` adds a preview
"""
