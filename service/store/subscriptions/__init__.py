"""Subscriptions: the user index, the channel index in key groups (CLASH), pauses, and OPML imports."""
