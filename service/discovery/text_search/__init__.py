"""Text search: by which words a document is found, which words a query stands for, and the order of the results.

Documents are channels and entries. The terms are those of information retrieval; relevance is BM25F.

- ``searchable_text``   the analysed text of a document, and the weights of its stems
- ``vocabulary``        the registered words, for prefixes and misspelt words
- ``query_expansion``   the AV-pairs that stand for the words of a query
- ``ranking``           the score of a result
- ``snippets``          one line of a text with the words of the query
"""
