"""Messages to and from users: outboxes, the inbound log, and dry runs of commands."""
