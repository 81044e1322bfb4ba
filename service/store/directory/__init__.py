"""The search directory: its matrices and their cells, lookup directories, saved searches, and the vocabulary."""
