"""Queries: their grammar, and saved searches, which match new entries with queries.

``query`` has the types, ``query_tokens`` and ``query_parser`` the grammar, and ``saved_searches`` the index of saved
searches.
"""
