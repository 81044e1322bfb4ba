"""Search queries: their types, their parser, and the index of saved searches.

- ``query``: types for queries and answers
- ``query_tokens``: splits a query's text into tokens
- ``query_parser``: grammar of queries
- ``saved_searches``: index that finds the saved searches that match a new entry
"""
