"""Queries that pages and API operations share: caches, searches, metrics, and views of what the store has."""
