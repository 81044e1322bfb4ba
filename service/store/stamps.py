"""Scores of those who wait, by which whoever takes one off a list knows that nobody has put it there anew."""

import secrets
import time


def stamp() -> float:
    """Return a score that sorts by time (ms) and that no two writers share, so that a removal knows its own."""
    return time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024
