"""Text search for documents (channels and entries): words, similar words, relevance (BM25F) and snippets.

The terms are those of information retrieval.

- ``searchable_text``: the analysed text of a document, and the weights of its stems
- ``vocabulary``: the registered words, for prefixes and misspelt words
- ``query_expansion``: the registered words by which the words of a query are searched
- ``ranking``: the score of a result
- ``snippets``: one line of a text that contains words of the query
"""
