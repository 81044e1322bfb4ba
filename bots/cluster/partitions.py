"""The states of the partitions that a process holds or has held.

Several processes share numbered partitions by leases in the store (:mod:`service.store.coordination.worker_leases`). A
process serves a partition while it holds the lease. It *drains* a partition, that is, finishes its work, before it
returns the lease, and also if another process has taken over the partition, because at most one process may work for a
partition (guarantee I2).
"""

import enum
from collections.abc import Collection, Mapping

import msgspec


class PartitionState(enum.Enum):
    """The state of one partition in one process."""

    SERVED = enum.auto()
    """The process holds the lease and serves the users of the partition."""
    DRAINING = enum.auto()
    """The process finishes the work it has begun for the partition, and begins no more."""
    DRAINED = enum.auto()
    """No work is left; the next heartbeat returns the lease."""


class Partitions(msgspec.Struct, frozen=True):
    """The partitions of one process by number. The object is immutable; each transition returns a new one."""

    states: Mapping[int, PartitionState] = msgspec.field(default_factory=dict)

    def in_state(self, state: PartitionState) -> frozenset[int]:
        """Return the numbers of the partitions in ``state``."""
        return frozenset(number for number, own in self.states.items() if own is state)

    def after_heartbeat(self, leased: frozenset[int], fair_share: int, returned: Collection[int]) -> "Partitions":
        """Return the states after a heartbeat, by which the process has renewed its leases.

        ``leased`` are the partitions whose leases the process now holds, and ``returned`` the drained partitions whose
        leases it has returned. ``fair_share`` is the number of partitions that the process may serve.

        New partitions are served. Partitions whose lease was lost, and those beyond ``fair_share``, are drained. A
        drained partition is served again only after it was returned and leased again.
        """
        kept = {number: state for number, state in self.states.items() if number not in returned}
        states = dict.fromkeys(sorted(leased), PartitionState.SERVED) | kept
        served = sorted(number for number, state in states.items() if state is PartitionState.SERVED)
        lost = [number for number in served if number not in leased]
        excess = [number for number in served if number in leased][fair_share:]
        return Partitions(states | dict.fromkeys([*lost, *excess], PartitionState.DRAINING))

    def after_release(self) -> "Partitions":
        """Return the states after the process has given up all leases: all served partitions are drained."""
        return self.after_heartbeat(frozenset(), 0, ())

    def after_draining(self, numbers: Collection[int]) -> "Partitions":
        """Return the states after all work for the partitions with these numbers has ended."""
        return Partitions({**self.states, **dict.fromkeys(numbers, PartitionState.DRAINED)})
