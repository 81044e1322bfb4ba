"""How users are divided into partitions, and which users are assigned to one bot process.

Several processes can share one XMPP account. The users of the account are divided into ``PARTITION_COUNT`` partitions
by a hash of their ids, and each process serves the users in the partitions that it holds. If the bot is a component
with several addresses instead, each user has one of these addresses as home address. The process that serves this
address serves the user.

A process holds each of its partitions by a lease in the store (:mod:`service.store.coordination.leases`), and serves
the partition while it holds the lease. To *drain* a partition is to finish the work in progress for its users without
starting new work. At most one process may work for a partition at a time (guarantee I2). Therefore a process drains a
partition before it returns the lease. It also drains a partition whose lease another process has taken over. If a
process is suspended for longer than its leases last, other processes may take over its partitions in the meantime;
:meth:`AssignedUsers.is_lease_valid` then returns False.
"""

import enum
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from service.clock import Clock
from service.model import UserId
from service.store.people.users import HomeAddresses

PARTITION_COUNT: Final = 64
ALL_PARTITIONS: Final = frozenset(range(PARTITION_COUNT))


def partition_of(user_id: UserId) -> int:
    """Return the number (from 0) of the partition that contains the user."""
    return zlib.crc32(user_id.encode()) % PARTITION_COUNT


class AssignedUsers:
    """The users whom one bot serves: those who are in its partitions and have the bot's address as home address."""

    def __init__(
        self, home_addresses: HomeAddresses, clock: Clock, address: str, addresses: Sequence[str] = ()
    ) -> None:
        """Create an instance to which no partitions are assigned yet.

        ``address`` is the bare JID of this bot. ``addresses`` are all the addresses among which users are divided; if
        it is empty, ``address`` is the only one. The home address of each user is read from ``home_addresses``. A user
        whose home address is not in ``addresses`` is served at the first of ``addresses``.
        """
        self._home_addresses = home_addresses
        self._clock = clock
        self._address = address
        self._addresses = addresses or (address,)
        self.partitions: frozenset[int] = frozenset()
        self._valid_until_s = -math.inf

    @property
    def is_leader(self) -> bool:
        """Whether this bot holds partition 0, and therefore does the work that only one bot per address must do."""
        return 0 in self.partitions

    @property
    def is_publisher(self) -> bool:
        """Whether this bot publishes the pubsub nodes, which only the leader at the first address does."""
        return self.is_leader and self._address == self._addresses[0]

    def assign(self, partitions: frozenset[int], valid_until_s: float = math.inf) -> None:
        """Replace the assigned partitions with ``partitions``.

        The process holds each partition by a lease in the store. These leases are valid until ``valid_until_s``, in
        seconds of the monotonic clock.
        """
        self.partitions, self._valid_until_s = partitions, valid_until_s

    def is_lease_valid(self) -> bool:
        """Return whether the leases are still valid, so that no other process can have taken over the partitions."""
        return self._clock.monotonic_s() < self._valid_until_s

    def includes(self, user_id: UserId) -> bool:
        """Return whether the user is in one of the assigned partitions.

        Unlike :meth:`select`, this method does not check that the bot's address is the user's home address.
        """
        return partition_of(user_id) in self.partitions

    async def select(self, user_ids: Collection[UserId]) -> list[UserId]:
        """Return those of ``user_ids`` whom this bot serves, in the same order.

        Raises StoreUnavailable if the store does not respond.
        """
        included = [user_id for user_id in user_ids if self.includes(user_id)]
        if len(self._addresses) == 1 or not included:
            return included
        homes = await self._home_addresses.of_users(included)
        known = [home if home in self._addresses else self._addresses[0] for home in homes]
        return [user_id for user_id, home in zip(included, known, strict=True) if home == self._address]


class PartitionState(enum.Enum):
    """What one process currently does with a partition."""

    SERVED = enum.auto()
    """The process holds the lease and serves the users of the partition."""
    DRAINING = enum.auto()
    """The process finishes the work in progress for the partition, and starts no new work."""
    DRAINED = enum.auto()
    """No work is left for the partition; the process returns the lease at the next heartbeat."""


class Partitions(msgspec.Struct, frozen=True):
    """The partitions (groups of users) for which one process works, and what it does with each of them.

    ``states`` maps the number of each partition to its state. Instances are immutable; the methods that change
    states return a changed copy.
    """

    states: Mapping[int, PartitionState] = msgspec.field(default_factory=dict)

    def in_state(self, state: PartitionState) -> frozenset[int]:
        """Return the numbers of the partitions in ``state``."""
        return frozenset(number for number, own in self.states.items() if own is state)

    def after_heartbeat(self, leased: frozenset[int], fair_share: int, returned: Collection[int]) -> "Partitions":
        """Return a copy with the partition states after a heartbeat, in which the process has renewed its leases.

        - ``leased``: the partitions whose leases the process holds now.
        - ``fair_share``: how many partitions the process may serve.
        - ``returned``: the drained partitions whose leases the process has returned.

        Newly leased partitions become SERVED. Partitions whose lease was lost, and partitions in excess of
        ``fair_share``, become DRAINING. A DRAINED partition can become SERVED again only after its lease has been
        returned and acquired anew.
        """
        kept = {number: state for number, state in self.states.items() if number not in returned}
        states = dict.fromkeys(sorted(leased), PartitionState.SERVED) | kept
        served = sorted(number for number, state in states.items() if state is PartitionState.SERVED)
        lost = [number for number in served if number not in leased]
        excess = [number for number in served if number in leased][fair_share:]
        return Partitions(states | dict.fromkeys([*lost, *excess], PartitionState.DRAINING))

    def after_release(self) -> "Partitions":
        """Return a copy in which all SERVED partitions have become DRAINING. Call this after giving up all leases."""
        return self.after_heartbeat(frozenset(), 0, ())

    def after_draining(self, numbers: Collection[int]) -> "Partitions":
        """Return a copy in which the partitions with these numbers are DRAINED.

        Call this when all work for these partitions has ended.
        """
        return Partitions({**self.states, **dict.fromkeys(numbers, PartitionState.DRAINED)})
