"""Delivery of the users' outboxes: what is sent to whom and when, in which words, and what is sent again.

- ``outbox_consumer``: events, and bursts of users who are due; the interface for the rest of the bot
- ``scheduler``: the order of users, rate limits, back-off, and recovery of batches in flight (pure)
- ``batch_sender``: the steps of a burst: recover, select, defer, claim, correct, render, send, record
- ``suppression``: mutes, filters and notification intervals
- ``delivery_window``: quiet hours, digests and presence
- ``recipient_cache``, ``receipt_tracker``: users' settings, and their clients' receipts (XEP-0184)
- ``corrections``: the earlier message that a batch of edits replaces (XEP-0308)
- ``message_bodies``, ``notification_text``: the content of messages, and its text (pure)
"""
