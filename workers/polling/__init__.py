"""Polls of publishers: when, how politely, in which concurrency, and what follows."""
