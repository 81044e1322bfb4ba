"""Repositories of channels: versions and content, admins' settings, moves, hub subscriptions, and pubsub nodes."""
