"""Messages to and from users: outboxes, dead letters, announcements, units of fan-outs, and the inbound log."""
