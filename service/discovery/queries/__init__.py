"""Queries, their parser, and the index of saved searches.

``query`` has the types of queries and answers, ``query_tokens`` and ``query_parser`` the grammar, and
``saved_searches`` the index that matches each new entry with saved searches.
"""
