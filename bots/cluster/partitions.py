"""The states of the partitions that a process holds. Pure.

Several processes share numbered partitions by leases in the store (:mod:`service.store.coordination.leases`). A
process serves a partition while it has the lease. It drains one before it gives it back, and one that others took
over: nothing that it began for it may go on while another process serves it.
"""

import enum
from collections.abc import Collection, Mapping

import msgspec


class State(enum.Enum):
    """What a process does with a partition that it holds or held."""

    SERVED = enum.auto()
    DRAINING = enum.auto()
    """What was begun for it is being finished."""
    DRAINED = enum.auto()
    """It is given back with the next heartbeat."""


class Partitions(msgspec.Struct, frozen=True):
    """The partitions of one process at one moment, by number. Each method returns those of the next moment."""

    states: Mapping[int, State] = msgspec.field(default_factory=dict)

    def being(self, state: State) -> frozenset[int]:
        """Return the numbers of the partitions in this state."""
        return frozenset(number for number, own in self.states.items() if own is state)

    def renewed(self, leased: frozenset[int], most: int, returned: Collection[int]) -> "Partitions":
        """A heartbeat has given back what is ``returned``, and got the leases of ``leased``.

        What is new is served, and drained again as far as there are more than ``most``. What is drained is served again
        only once it was given back and leased anew.
        """
        kept = {number: state for number, state in self.states.items() if number not in returned}
        states = dict.fromkeys(sorted(leased), State.SERVED) | kept
        gone = [number for number, state in states.items() if state is State.SERVED and number not in leased]
        served = sorted(number for number, state in states.items() if state is State.SERVED and number in leased)
        return Partitions(states | dict.fromkeys([*gone, *served[most:]], State.DRAINING))

    def lost(self) -> "Partitions":
        """The process has given up all leases at once."""
        return self.renewed(frozenset(), 0, ())

    def drained(self, numbers: Collection[int]) -> "Partitions":
        """Nothing is under way any more for these partitions."""
        return Partitions({**self.states, **dict.fromkeys(numbers, State.DRAINED)})
