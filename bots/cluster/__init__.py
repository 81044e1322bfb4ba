"""Partitions of people over bot processes, and the recovery of a failed process."""
