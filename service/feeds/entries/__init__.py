"""Entries: which are new, which are edited, and what is remembered of those that are known. Pure."""
