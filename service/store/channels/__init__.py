"""Channels, their versions, and what is known of each."""
