"""The owner role of a node: versions of its channels, their fan-out, and their registration in the directory."""
