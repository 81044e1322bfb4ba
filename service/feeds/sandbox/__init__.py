"""The sandbox: processes that parse untrusted documents, and the protocol by which other processes use them.

A parser process is killed if a document uses too much time or memory.
"""
