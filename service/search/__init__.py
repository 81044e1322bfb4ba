"""Search for channels and entries, and the registration of entries in the directory that searches read."""
