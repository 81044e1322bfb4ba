"""The network between nodes: every message takes its time, and some never arrive."""

import numpy as np

MEDIAN_DELAY_S = 0.08
SPREAD = 0.5
"""Of the delay's logarithm: one in a hundred takes three times the median. Our choice, as of several continents."""
AT_ONCE = 1 << 16


class Wire:
    """Delays and losses, drawn one after another."""

    def __init__(self, loss: float, rng: np.random.Generator) -> None:
        self._loss, self._rng = loss, rng
        self._drawn: list[float] = []

    def delay_s(self) -> float | None:
        """Return how long the next message takes; None if it is lost."""
        if not self._drawn:
            delays_s = MEDIAN_DELAY_S * np.exp(SPREAD * self._rng.standard_normal(AT_ONCE))
            self._drawn = np.where(self._rng.random(AT_ONCE) < self._loss, np.nan, delays_s).tolist()
        drawn_s = self._drawn.pop()
        return drawn_s if drawn_s == drawn_s else None  # noqa: PLR0124 - NaN is a lost one
