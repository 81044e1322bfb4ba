"""The directory: matrix cells, content names, and saved searches."""
