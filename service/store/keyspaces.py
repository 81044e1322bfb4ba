"""Keyspaces on Redis: what ``service.clash`` decides, carried out in one slot at a time."""

from collections.abc import Mapping, Sequence

from service.clash.accepting import Answer
from service.clash.groups import KeyGroup
from service.clash.keys import Layout
from service.clash.mapping import Keyspace, Keyspaces
from service.clash.records import Page, Record
from service.clash.search import Probe
from service.clash.steps import Outcome, Step
from service.clash.table import ServerTable
from service.clash.walk import ReadDonor, ReadLeaf
from service.store.link import Link


class KeyspaceStore:
    """All keyspaces of a store. Calls of one turn of the event loop share a round trip.

    Every method may raise :class:`service.errors.StoreUnavailable`, and where it meets a table that is not ours
    :class:`service.errors.NewerTable`, :class:`service.errors.UnknownKeyspace` or :class:`service.errors.BadKey`.
    """

    def __init__(self, link: Link, keyspaces: Keyspaces = Keyspaces(), bits: int = Layout().bits) -> None:
        """Use this link to Redis; so many keyspaces, and bits of a key."""
        self._link = link
        self.map = keyspaces
        self.bits = bits

    async def carry_out(self, step: Step) -> Outcome:
        """Do a step of a move, atomically; raises :class:`service.errors.StepRefused` as the pure transition does."""
        raise NotImplementedError(step)

    async def tables(self, keyspaces: Sequence[Keyspace]) -> list[ServerTable]:
        """Return keyspaces' tables, in the order asked for."""
        raise NotImplementedError(keyspaces)

    async def ask(self, probe: Probe) -> Answer:
        """AcceptObject, for who only wants to know."""
        raise NotImplementedError(probe)

    async def write(self, probe: Probe, record: Record) -> Answer:
        """AcceptObject, for a subscription or its end: written if, and only if, it is accepted."""
        raise NotImplementedError(probe, record)

    async def read_leaf(self, question: ReadLeaf) -> tuple[Answer, Page]:
        """AcceptObject, for a reader."""
        raise NotImplementedError(question)

    async def read_donor(self, question: ReadDonor) -> Page:
        """Read what has not gone over yet."""
        raise NotImplementedError(question)

    async def sizes(self, keyspace: Keyspace, groups: Sequence[KeyGroup]) -> list[int]:
        """Return how many subscriptions of each group lie in a keyspace."""
        raise NotImplementedError(keyspace, groups)

    async def told(self, keyspace: Keyspace, group: KeyGroup, deliveries: int) -> None:
        """Note that so many people of a leaf were told something. May be lost: loads are soft state."""
        raise NotImplementedError(keyspace, group, deliveries)

    async def take_told(self, keyspace: Keyspace) -> Mapping[KeyGroup, int]:
        """Return what was noted since the last call, by leaf, and begin again from nothing."""
        raise NotImplementedError(keyspace)
