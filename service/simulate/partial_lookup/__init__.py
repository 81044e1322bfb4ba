"""Experiment ``partial-lookup`` (Sun and Garcia-Molina §4, §6)."""
