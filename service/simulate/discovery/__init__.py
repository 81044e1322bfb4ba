"""Experiment ``discovery`` (Gao and Steenkiste §V-VI)."""
