"""Web pages: their core content as lines, and what changed in it. Pure."""
