"""Experiment ``schedulers``: Corona's schedule beside those of other feed readers."""
