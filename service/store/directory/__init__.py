"""The directory: cells of matrices, registered names, and saved searches."""
