"""Who keeps a directory's servers at what the matrices have: measures, chooses, and says what changes.

A directory is read anew now and then, whole; what servers are told is the difference. So entries are always added and
deleted rightly, whatever the strategy.

We deviate: whatever is read is one batch, and one letter takes all of it that a server is told. So what a reading
finds changed counts as one update, whatever it is; and a Round-Robin-y that has to delete is placed anew, which takes
no more letters than one delete does, and needs no order among them.
All directories are placed anew every so often, because messages can be lost: they are soft state like the rest.
"""

from collections.abc import Iterable

from service.discovery.partial.choosing import Choice, Measured, choose
from service.discovery.partial.messages import Add, Delete, Place, Request
from service.discovery.partial.strategies import RoundRobin

PLACED_ANEW = 10
"""After so many readings."""


class Coordinator:
    """One directory's, for as long as the servers are the same. Belongs to one node."""

    def __init__(self, servers: int) -> None:
        """Coordinate so many servers."""
        self.choice: Choice | None = None
        """Which strategy, and why; None before the first reading."""
        self.measured: Measured | None = None
        """What it was chosen by."""
        self.placed = 0
        """How often all has been placed."""
        self._servers = servers
        self._entries: dict[str, None] = {}
        self._readings = 0

    def read(self, entries: Iterable[str], lookups: float, target: int) -> list[Request]:
        """Return what to do now that the directory has these entries; ``lookups`` and t are those since the last time.

        A :class:`Place` always stands alone, and is for new servers of ``choice``.
        """
        there = dict.fromkeys(entries)
        deleted = [entry for entry in self._entries if entry not in there]
        added = [entry for entry in there if entry not in self._entries]
        updates = int(self.choice is not None and bool(added or deleted))
        due = self._readings % PLACED_ANEW == 0
        self._readings += 1
        self._entries = there
        if self.choice and not due and not (deleted and isinstance(self.choice.strategy, RoundRobin)):
            return [*map(Delete, deleted), *map(Add, added)]
        self.measured = Measured(target, len(there), self._servers, updates / max(lookups, 1.0))
        self.choice = choose(self.measured)
        self.placed += 1
        return [Place(tuple(there))]
