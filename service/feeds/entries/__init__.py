"""The entries of a feed: which are known, new or edited, and which are duplicates of other feeds' entries.

- ``entry_change_detection``: finds the new and edited entries of a document
- ``entry_identity``: matches the entries of a document with known entries
- ``entry_hashes``: the hashes by which entries are recognised and edits are detected
- ``known_entries``: the table of a feed's known entries
- ``unchanged_entries``: recognises entries that the parser can skip
- ``edit_suppression``: selects the edits to report
- ``duplicate_articles``: recognises the same article in several feeds
- ``version_parts``: divides the changes found by one poll into news and edits
"""
