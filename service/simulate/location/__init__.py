"""Experiment ``location`` (Rhea and Kubiatowicz §III-IV)."""
