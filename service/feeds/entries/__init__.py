"""Entries of a feed: their identity, the detection of new and edited ones, and the parts of a version."""
