"""Experiment ``corona`` (Corona §5)."""
