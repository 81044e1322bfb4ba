"""Experiment ``clash`` (CLASH §VI)."""
