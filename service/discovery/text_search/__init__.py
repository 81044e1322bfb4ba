"""Text search: the words by which a document is found, the words that a query stands for, and the order of results.

Documents are channels and entries. The terms are those of information retrieval; relevance is BM25F.

- ``searchable_text``   the analysed text of a document, and the weights of its stems
- ``vocabulary``        the registered words, for prefixes and misspelt words
- ``query_expansion``   the AV-pairs by which the words of a query are searched
- ``ranking``           the score of a result
- ``snippets``          one line of a text that contains words of the query
"""
