"""Web pages: the extraction of their main content, and the detection of changes in it."""
