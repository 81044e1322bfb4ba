"""How many subscribe to a channel, wherever its key groups are: one question, as long as they are one leaf."""

from service.clash.groups import KeyGroup, Keyspace
from service.clash.search import Depths, Probe, Units
from service.clash.transitions import Accepted
from service.store.keyspaces import KeyspaceStore


class Counting:
    """One count. Each keyspace counts all it has of a channel, so it is asked only for its latest word."""

    def __init__(self, keyspaces: KeyspaceStore, mark: bytes) -> None:
        """Count the channel of this mark (:func:`service.store.packing.channel_mark`)."""
        self._keyspaces = keyspaces
        self._mark = mark
        self._found: dict[Keyspace, int] = {}

    async def under(self, prefix: KeyGroup, depths: Depths) -> int:
        """Return how many there are; too many, but never too few, while groups move.

        Raises :class:`service.errors.GroupsMoving`, and what the keyspaces raise.
        """
        units = Units(prefix, self._keyspaces.map, depths)
        while units.probe is not None:
            await self._ask(units, units.probe)
        return sum(self._found.values())

    async def _ask(self, units: Units, probe: Probe) -> None:
        """Ask for a leaf; one that is being filled once more after its donor, since subscriptions go over meanwhile."""
        answer, number = await self._keyspaces.count(probe, self._mark)
        if isinstance(answer, Accepted) and answer.move is not None:
            donor = answer.move.donor
            self._found[donor] = await self._keyspaces.count_in(donor, self._mark)
            answer, number = await self._keyspaces.count(probe, self._mark)
        if isinstance(answer, Accepted):
            self._found[probe.keyspace] = number
        units.answered(answer)
