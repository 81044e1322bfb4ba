"""Records of subscriptions, and prefix queries for those under a prefix.

A query returns each record exactly once, page by page (the paper's future work, §VII).

The reader's place is a position among the keys, not in any store. It finds the leaf at its place, reads a page there,
and goes on behind what it read; the end of one leaf is where the search for the next begins. So groups may split and
merge between two pages, and a reader that crashed goes on from the place it had noted. A leaf that is still being
filled is read after its donor: records go over before they leave, so whatever the donor does not have any more is
in the leaf by then.

Records are ordered by key and id; a group is a range of them. A record carries the ``seq`` of its subscriber's change:
the greater one is the newer, wherever and in whatever order two versions meet, so copies can be taken while people go
on writing, and taken twice. An end leaves a record that is not ``present`` (a tombstone) in a leaf that is still being
filled, for the beginning that may yet arrive there; once it is filled, tombstones go.
"""

from collections.abc import Iterable, Sequence

import msgspec

from service.clash.group_search import Depths, DepthSearch, Probe
from service.clash.key_groups import KeyGroup, Map
from service.clash.server_table import Move
from service.clash.transitions import Accepted, Answer

Position = tuple[int, str]
"""A key and an id: where a record stands, and so where a reader goes on."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One subscription. ``id`` tells those of one key apart: channel and subscriber."""

    key: int
    id: str
    seq: int
    present: bool = True

    @property
    def position(self) -> Position:
        """Where it stands."""
        return self.key, self.id


class Page(msgspec.Struct, frozen=True):
    """Records of one range in their order. ``complete`` says that none follow in the range."""

    records: tuple[Record, ...]
    complete: bool


def newer(one: Record, other: Record) -> Record:
    """Return which of two records of one subscription counts; of equal ones, the end does."""
    return max(one, other, key=lambda record: (record.seq, not record.present))


def joined(earlier: Page, later: Page) -> Page:
    """Return the page of a leaf that is being filled: of its donor, read *earlier*, and of the leaf itself.

    What went over in between is in both, and counts once. It reaches as far as both pages do.
    """
    end = min((page.records[-1].position for page in (earlier, later) if not page.complete), default=None)
    found: dict[Position, Record] = {}
    for record in (*earlier.records, *later.records):
        if end is None or record.position <= end:
            found[record.position] = newer(record, found.get(record.position, record))
    return Page(tuple(found[position] for position in sorted(found)), complete=end is None)


def present(records: Iterable[Record]) -> Sequence[Record]:
    """Return the records without tombstones."""
    return [record for record in records if record.present]


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

        Raises :class:`KeyGroupMoving` if no keyspace accepts the key at our place.
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
