"""Searching channels and entries, and registering entries in the search directory."""
