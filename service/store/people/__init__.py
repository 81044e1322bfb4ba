"""People: preferences, suspension, invitations, rooms and erasure."""
