"""Subscriptions: the index of each person, and the index of each channel in key groups."""
