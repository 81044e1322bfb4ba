"""Entries of a feed: which are the same, which are new or edited, and their division into news and edits."""
