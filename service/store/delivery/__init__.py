"""Messages to and from users: outboxes, dead letters, announcements, shared fan-outs, and the inbound log."""
