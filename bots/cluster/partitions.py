"""The partitions of users, which several bot processes share, and the users assigned to one process.

Several processes can share one XMPP account. The users of the account are divided into ``PARTITION_COUNT`` partitions
by a hash of their ids, and each process serves the users of the partitions that it holds. If the bot has several
addresses instead (components), each user has one of them as home address, and is served by the process that serves this
address.

A process holds its partitions by leases in the store (:mod:`service.store.coordination.leases`), and serves a partition
while it holds the lease. To *drain* a partition is to finish the work that has begun for it, without beginning more. At
most one process may work for a partition (guarantee I2). For this reason, a process drains a partition before it
returns the lease. It also drains a partition whose lease another process has taken over. If a process is stopped for
longer than the lease lasts, another process may have taken over its partitions; :meth:`AssignedUsers.is_lease_valid` is
then False.
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
    """Return the number of the partition that contains a user."""
    return zlib.crc32(user_id.encode()) % PARTITION_COUNT


class AssignedUsers:
    """The users whom one bot serves: those in its partitions whose home address is the bot's address."""

    def __init__(
        self, home_addresses: HomeAddresses, clock: Clock, address: str, addresses: Sequence[str] = ()
    ) -> None:
        """Create an object to which no partitions are assigned.

        ``address`` is the bare JID of this bot. ``addresses`` are all addresses among which users are divided; empty
        means that there is only this address. The home address of each user is read from ``home_addresses``. A user
        whose home address is none of ``addresses`` belongs to the first of them.
        """
        self._home_addresses = home_addresses
        self._clock = clock
        self._address = address
        self._addresses = addresses or (address,)
        self.partitions: frozenset[int] = frozenset()
        self._valid_until_s = -math.inf

    @property
    def is_leader(self) -> bool:
        """Whether this bot does the work that is needed once per address, because it holds partition 0."""
        return 0 in self.partitions

    @property
    def is_publisher(self) -> bool:
        """Whether this bot publishes the pubsub nodes: it holds partition 0 and has the first of all addresses."""
        return self.is_leader and self._address == self._addresses[0]

    def assign(self, partitions: frozenset[int], valid_until_s: float = math.inf) -> None:
        """Replace the assigned partitions; the lease of the new ones is valid until ``valid_until_s`` (monotonic s)."""
        self.partitions, self._valid_until_s = partitions, valid_until_s

    def is_lease_valid(self) -> bool:
        """Return whether the lease is still valid; as long as it is, no other process can take the partitions over."""
        return self._clock.monotonic_s() < self._valid_until_s

    def includes(self, user_id: UserId) -> bool:
        """Return whether a user is in one of the assigned partitions.

        In contrast to :meth:`select`, this method does not check that the bot's address is the user's home address.
        """
        return partition_of(user_id) in self.partitions

    async def select(self, user_ids: Collection[UserId]) -> list[UserId]:
        """Return the users among ``user_ids`` whom this bot serves, in the same order.

        Raises StoreUnavailable if the store does not respond.
        """
        included = [user_id for user_id in user_ids if self.includes(user_id)]
        if len(self._addresses) == 1 or not included:
            return included
        homes = await self._home_addresses.of_users(included)
        known = [home if home in self._addresses else self._addresses[0] for home in homes]
        return [user_id for user_id, home in zip(included, known, strict=True) if home == self._address]


class PartitionState(enum.Enum):
    """The state of one partition in one process."""

    SERVED = enum.auto()
    """The process holds the lease and serves the users of the partition."""
    DRAINING = enum.auto()
    """The process finishes the work it has begun for the partition, and begins no more."""
    DRAINED = enum.auto()
    """No work is left for the partition; the process returns the lease at the next heartbeat."""


class Partitions(msgspec.Struct, frozen=True):
    """The states of the partitions of one process, by number of the partition.

    The object is immutable; each method for a change of states returns a changed copy.
    """

    states: Mapping[int, PartitionState] = msgspec.field(default_factory=dict)

    def in_state(self, state: PartitionState) -> frozenset[int]:
        """Return the numbers of the partitions in ``state``."""
        return frozenset(number for number, own in self.states.items() if own is state)

    def after_heartbeat(self, leased: frozenset[int], fair_share: int, returned: Collection[int]) -> "Partitions":
        """Return a copy with the states that follow from a heartbeat, by which the process has renewed its leases.

        - ``leased``: the partitions whose leases the process holds now.
        - ``fair_share``: the number of partitions that the process may serve.
        - ``returned``: the drained partitions whose leases the process has returned.

        Newly leased partitions become SERVED. Partitions whose lease was lost, and partitions beyond ``fair_share``,
        become DRAINING. A partition in state DRAINED becomes SERVED again only after its lease was returned and
        acquired again.
        """
        kept = {number: state for number, state in self.states.items() if number not in returned}
        states = dict.fromkeys(sorted(leased), PartitionState.SERVED) | kept
        served = sorted(number for number, state in states.items() if state is PartitionState.SERVED)
        lost = [number for number in served if number not in leased]
        excess = [number for number in served if number in leased][fair_share:]
        return Partitions(states | dict.fromkeys([*lost, *excess], PartitionState.DRAINING))

    def after_release(self) -> "Partitions":
        """Return a copy in which all SERVED partitions are DRAINING. Call this when all leases were given up."""
        return self.after_heartbeat(frozenset(), 0, ())

    def after_draining(self, numbers: Collection[int]) -> "Partitions":
        """Return a copy in which the partitions ``numbers`` are DRAINED. Call this when all work for them has ended."""
        return Partitions({**self.states, **dict.fromkeys(numbers, PartitionState.DRAINED)})
