"""Messages to and from users: outboxes, dead letters, announcements, parts of fan-outs, and the inbound log."""
