"""Users: settings, home addresses, preferences, restrictions, invitation codes, group chats, and erasure."""
