"""How a fleet polls, as far as the protocol must know; the shell takes it from the settings."""

import msgspec

SILENT_INTERVALS = 3
"""After this many maintenance intervals without a word, soft state is forgotten (Corona §3.3)."""


class Policy(msgspec.Struct, frozen=True):
    """The same on every node of a fleet.

    ``pollers_per_channel`` is the polling set's size (if there are as many nodes),
    ``poll_interval_s`` is τ, and ``max_polls_per_hour`` bounds the set's polls of a public channel.
    """

    pollers_per_channel: int
    poll_interval_s: float
    max_polls_per_hour: float
    maintenance_interval_s: float

    @property
    def silence_s(self) -> float:
        """How long an assignment lives that is not repeated."""
        return SILENT_INTERVALS * self.maintenance_interval_s
