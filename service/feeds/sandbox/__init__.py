"""Processes that parse documents of publishers, confined and killed when they take too long."""
