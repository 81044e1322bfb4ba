"""Subscriptions: the user index, the channel index in CLASH key groups, pauses, and OPML imports."""
