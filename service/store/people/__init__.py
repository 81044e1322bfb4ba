"""Users: settings, preferences, restrictions, invitation codes, group chats, and erasure."""
