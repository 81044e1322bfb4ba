"""Search queries: their types, their parser, and the index of saved searches.

- ``query``           types of queries and answers
- ``query_tokens``    tokens of a query's text
- ``query_parser``    grammar of queries
- ``saved_searches``  index that matches each new entry with saved searches
"""
