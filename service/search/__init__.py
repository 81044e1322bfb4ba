"""Search for channels and entries, and the registration of entries in the search directory."""
