"""Subscription records, and prefix queries that return each record under a prefix exactly once, page by page.

Prefix queries are the paper's future work (§VII). The reader's position is a place among the keys, independent of any
keyspace. A query finds the leaf at its position, reads a page there and advances behind it; the end of one leaf is
where the search for the next begins. Groups may therefore split and merge between two pages, and a reader that has
crashed resumes from its saved position. A leaf that is still being filled from another keyspace, its donor, is read
after the donor: records are copied before they are deleted, so what the donor no longer has is in the leaf by then.

Records are ordered by key and id; a group is a range of them. A record carries ``seq``, the number of its subscriber's
change: of two versions of a record, the one with the greater number is newer, wherever and in whatever order they meet.
Records can therefore be copied, even twice, during writes. A deletion in a leaf that is still being filled leaves a
record that is not ``present`` (a tombstone), because an older version of the record may still arrive; once the leaf is
filled, tombstones are dropped.
"""

from collections.abc import Iterable, Sequence

import msgspec

from service.clash.group_search import DepthCache, DepthSearch, Probe
from service.clash.key_groups import KeyGroup, KeyspaceMap
from service.clash.server_table import Move
from service.clash.transitions import Accepted, AcceptObjectReply

Position = tuple[int, str]
"""A key and an id: the place of a record in the order, and of a reader."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One subscription.

    ``id``, made of channel and subscriber, distinguishes records of one key. ``seq`` grows with each change by the
    subscriber. A record that is not ``present`` is a tombstone: the subscription has ended.
    """

    key: int
    id: str
    seq: int
    present: bool = True

    @property
    def position(self) -> Position:
        """The record's place in the order of records: its key, then its id."""
        return self.key, self.id


class Page(msgspec.Struct, frozen=True):
    """Successive records of a range of records, in order.

    ``complete`` states whether the page ends with the last record of the range.
    """

    records: tuple[Record, ...]
    complete: bool


def newer(one: Record, other: Record) -> Record:
    """Return the newer of two versions of one record; if they are equally new, the tombstone."""
    return max(one, other, key=lambda record: (record.seq, not record.present))


def merge_pages(earlier: Page, later: Page) -> Page:
    """Return the page of a leaf that is still being filled, from two pages of its records.

    ``earlier`` is a page of the donor, the keyspace that the records leave. ``later`` is a page of the leaf, read after
    it. Records that were copied in between are in both and count once. The result ends where the shorter page ends.
    """
    end = min((page.records[-1].position for page in (earlier, later) if not page.complete), default=None)
    found: dict[Position, Record] = {}
    for record in (*earlier.records, *later.records):
        if end is None or record.position <= end:
            found[record.position] = newer(record, found.get(record.position, record))
    return Page(tuple(found[position] for position in sorted(found)), complete=end is None)


def without_tombstones(records: Iterable[Record]) -> Sequence[Record]:
    """Return the records of subscriptions that have not ended."""
    return [record for record in records if record.present]


class ReadLeaf(msgspec.Struct, frozen=True):
    """Process the probe and, if the key is accepted, read a page of the records of the key's leaf.

    The page has up to ``count`` records under ``prefix``, from those after the position ``after`` (None: from the
    first). Both happen in one script, because the leaf may be another keyspace's right after.
    """

    probe: Probe
    prefix: KeyGroup
    after: Position | None
    count: int


class ReadDonor(msgspec.Struct, frozen=True):
    """Read a page of the records that the donor of a move, the keyspace that they leave, still has.

    The page has up to ``count`` records of ``group``, from those after the position ``after`` (None: from the first).
    It is empty once the donor has finished.
    """

    move: Move
    group: KeyGroup
    after: Position | None
    count: int


ReadRequest = ReadLeaf | ReadDonor


class PrefixQuery:
    """A query for all records under a prefix.

    Carry out :attr:`request` and pass its result to :meth:`on_leaf_page` or :meth:`on_donor_page`, until it is None.
    """

    def __init__(
        self, prefix: KeyGroup, keyspaces: KeyspaceMap, depths: DepthCache, count: int, place: Position | None = None
    ) -> None:
        """Begin a query for the records under a prefix, in pages of ``count`` records.

        ``place`` is the ``position`` of an earlier query, from which this one continues; None means from the first
        record. ``depths`` is the client's cache.
        """
        self._prefix, self._keyspaces, self._depths, self._count = prefix, keyspaces, depths, count
        self.position = place
        """All records before this position have been read."""
        self.records: tuple[Record, ...] = ()
        """The page that the last result completed; often empty."""
        self.request: ReadRequest | None = None
        self._donor: tuple[Move, Page] | None = None
        self._start_search(prefix.key if place is None else place[0])

    def on_leaf_page(self, answer: AcceptObjectReply, page: Page) -> None:
        """Process the answer and the page of a :class:`ReadLeaf`; the page is empty if the key was not accepted.

        Raises :class:`KeyGroupMoving` if no keyspace accepts the key at the current position.
        """
        self.records = ()
        leaf = self._search.on_answer(answer)
        if leaf is not None:
            self._depths.record(leaf.group, self._search.depth)
        if leaf is None:
            self._donor = None
            self._request_leaf()
        elif leaf.move is None or (donor_part := leaf.move.group.intersection(self._prefix)) is None:
            self._advance(leaf, page)
        elif self._donor is not None and self._donor[0] == leaf.move:
            self._advance(leaf, merge_pages(self._donor[1], page))
        else:
            self.request = ReadDonor(leaf.move, donor_part, self.position, self._count)

    def on_donor_page(self, move: Move, page: Page) -> None:
        """Process the page of a :class:`ReadDonor` of this move; the next request reads the leaf again."""
        self._donor = move, page
        self._request_leaf()

    def _advance(self, leaf: Accepted, page: Page) -> None:
        self.records = tuple(without_tombstones(page.records))
        following = leaf.group.last + 1
        if not page.complete:
            self.position = page.records[-1].position
            self._start_search(self.position[0])
        elif following <= self._prefix.last:
            self.position = following, ""
            self._start_search(following)
        else:
            self.position = self._prefix.last + 1, ""
            self.request = None

    def _start_search(self, key: int) -> None:
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths.depth(key))
        self._donor = None
        self._request_leaf()

    def _request_leaf(self) -> None:
        self.request = ReadLeaf(self._search.probe, self._prefix, self.position, self._count)
