"""Prefix queries: all subscriptions under a prefix, each exactly once, page by page (the paper's future work, §VII).

The reader's place is a position among the keys, not in any store. It finds the leaf at its place, reads a page there,
and goes on behind what it read; the end of one leaf is where the search for the next begins. So groups may split and
merge between two pages, and a reader that crashed goes on from the place it had noted. A leaf that is still being
filled is read after its donor: records go over before they leave, so whatever the donor does not have any more is
in the leaf by then.
"""

import msgspec

from service.clash.groups import KeyGroup, Map
from service.clash.records import Page, Position, Record, joined, present
from service.clash.search import Depths, DepthSearch, Probe
from service.clash.table import Move
from service.clash.transitions import Accepted, Answer


class ReadLeaf(msgspec.Struct, frozen=True):
    """Answer the probe and, if the key is accepted, read of its leaf what is under ``prefix`` and beyond ``after``.

    Both in one script: an instant later the leaf may be another's.
    """

    probe: Probe
    prefix: KeyGroup
    after: Position | None
    count: int


class ReadDonor(msgspec.Struct, frozen=True):
    """Read what a move's donor still has of ``group``, beyond ``after``; nothing once it gives no more."""

    move: Move
    group: KeyGroup
    after: Position | None
    count: int


Question = ReadLeaf | ReadDonor


class Walk:
    """One prefix query. Ask :attr:`question` and hand over the answer until there is none."""

    def __init__(
        self, prefix: KeyGroup, keyspaces: Map, depths: Depths, count: int, place: Position | None = None
    ) -> None:
        """Read pages of ``count`` records under a prefix, from where another walk's ``place`` was."""
        self._prefix, self._keyspaces, self._depths, self._count = prefix, keyspaces, depths, count
        self.place = place
        """All up to here is read."""
        self.found: tuple[Record, ...] = ()
        """The page that the last answer completed; often empty."""
        self.question: Question | None = None
        self._donor: tuple[Move, Page] | None = None
        self._look(prefix.key if place is None else place[0])

    def read_leaf(self, answer: Answer, page: Page) -> None:
        """Take the answer to a :class:`ReadLeaf`; the page of one that was not accepted is empty.

        Raises :class:`GroupsMoving` if no keyspace accepts the key at our place.
        """
        self.found = ()
        leaf = self._search.answered(answer)
        if leaf is not None:
            self._depths.learn(leaf.group, self._search.depth)
        if leaf is None:
            self._donor = None
            self._ask()
        elif leaf.move is None or (wanted := leaf.move.group.shared(self._prefix)) is None:
            self._advance(leaf, page)
        elif self._donor is not None and self._donor[0] == leaf.move:
            self._advance(leaf, joined(self._donor[1], page))
        else:
            self.question = ReadDonor(leaf.move, wanted, self.place, self._count)

    def read_donor(self, move: Move, page: Page) -> None:
        """Take the answer to a :class:`ReadDonor`; now the leaf is asked again."""
        self._donor = move, page
        self._ask()

    def _advance(self, leaf: Accepted, page: Page) -> None:
        self.found = tuple(present(page.records))
        following = leaf.group.last + 1
        if not page.complete:
            self.place = page.records[-1].position
            self._look(self.place[0])
        elif following <= self._prefix.last:
            self.place = following, ""
            self._look(following)
        else:
            self.place = self._prefix.last + 1, ""
            self.question = None

    def _look(self, key: int) -> None:
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths.depth(key))
        self._donor = None
        self._ask()

    def _ask(self) -> None:
        self.question = ReadLeaf(self._search.probe, self._prefix, self.place, self._count)
