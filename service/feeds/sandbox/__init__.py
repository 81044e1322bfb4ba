"""The sandbox: parser processes that are killed if a document uses too much time or memory, and their protocol."""
