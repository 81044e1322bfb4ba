"""Text search for documents (channels and entries): words, similar words, relevance (BM25F) and snippets.

The terms are those of information retrieval.

- ``searchable_text``: the analysed text of a document, and the weights of its stems
- ``vocabulary``: all registered words, for finding words by prefix or despite misspelling
- ``query_expansion``: finds the registered words that correspond to the words of a query
- ``ranking``: the score of a result
- ``snippets``: one line of a text that contains words of the query
"""
