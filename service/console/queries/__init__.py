"""Queries that pages and API operations share: channels and their states, searches, metrics, and policy previews."""
