"""Resources for delivery: the state of outboxes, dead letters, and announcements."""
