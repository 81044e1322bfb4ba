"""Subscription records, and queries that return each record under a key prefix exactly once, page by page.

The paper leaves prefix queries to future work (§VII). Records are sorted by key and then id, so a group of keys is a
range of records. A query's *position* is the place in this order up to which the query has read. The query searches for
the group at its position, reads a page there, and advances its position past the page. Groups may be split, merged and
moved between two pages, and a reader that has crashed resumes from its saved position.

Why no record is missed or outdated:

- Each record has a sequence number, ``seq``, that grows with each change by its subscriber. The version with the
  greater number is newer, no matter which arrives first. Records can therefore be copied, even twice, while they are
  being written.
- While records of a group are being moved from another keyspace (the *donor*), the donor is read before the group.
  Records are copied before they are deleted, so a record that the donor no longer has is already in the group.
- A deletion during a move leaves a *tombstone*, a record that is not ``present``, because an older version may still
  arrive. Tombstones are deleted when all records have arrived.
"""

import msgspec

from service.clash.group_search import DepthCache, DepthSearch, Probe
from service.clash.key_groups import KeyGroup, KeyspaceMap
from service.clash.server_table import Move
from service.clash.table_transitions import Accepted, AcceptObjectReply

Position = tuple[int, str]
"""A place in the order of records: a key and an id. A reader's position is the place up to which it has read."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One subscription.

    - ``key``: the subscription's key, whose prefix assigns it to a group.
    - ``id``: a combination of channel and subscriber, which distinguishes records with the same key.
    - ``seq``: a number that grows with each change by the subscriber.
    - ``present``: false if the subscription has ended. Such a record is called a tombstone.
    """

    key: int
    id: str
    seq: int
    present: bool = True

    @property
    def position(self) -> Position:
        """The record's position in the sort order: its key, then its id."""
        return self.key, self.id


class Page(msgspec.Struct, frozen=True):
    """Consecutive records from a range of records, in sort order.

    ``complete`` states whether the page ends with the last record of the range.
    """

    records: tuple[Record, ...]
    complete: bool


def newer(one: Record, other: Record) -> Record:
    """Return the newer of two versions of a record: the one with the higher ``seq``.

    If both have the same ``seq``, a deletion counts as the newer version.
    """
    return max(one, other, key=lambda record: (record.seq, not record.present))


def merge_pages(earlier: Page, later: Page) -> Page:
    """Merge two pages of a group whose records are being moved from one keyspace to another.

    - ``earlier``: a page from the keyspace that gives the records away.
    - ``later``: a page from the keyspace that receives them. It must have been read after ``earlier``.

    The result contains the newer version of each record. The records after the end of an incomplete page are unknown.
    The result therefore ends where the incomplete page ends. If both pages are incomplete, the result ends at the one
    of the two ends that comes first in the sort order.
    """
    end = min((page.records[-1].position for page in (earlier, later) if not page.complete), default=None)
    found: dict[Position, Record] = {}
    for record in (*earlier.records, *later.records):
        if end is None or record.position <= end:
            found[record.position] = newer(record, found.get(record.position, record))
    return Page(tuple(found[position] for position in sorted(found)), complete=end is None)


class ReadLeaf(msgspec.Struct, frozen=True):
    """A request to a keyspace, a partition of the store: accept a key, and read a page of the key's group.

    If the keyspace does not accept the key, no records are read.

    - ``probe``: the request to accept the key.
    - ``prefix``: only records with keys in this group are read.
    - ``after``: the position after which the page begins; None to begin with the first record in ``prefix``.
    - ``count``: the maximum number of records.

    A single script processes the probe and reads the page. The group therefore cannot move to another keyspace in
    between.
    """

    probe: Probe
    prefix: KeyGroup
    after: Position | None
    count: int


class ReadDonor(msgspec.Struct, frozen=True):
    """A request to read a page of records from the *donor* of a move, which is the keyspace that gives records away.

    - ``move``: the split or merge whose donor is read.
    - ``group``: only records with keys in this group are read.
    - ``after``: the position after which the page begins; None to begin with the first record.
    - ``count``: the maximum number of records.

    The page is empty once all records have left the donor.
    """

    move: Move
    group: KeyGroup
    after: Position | None
    count: int


class PrefixQuery:
    """A query for all subscription records whose keys have a given prefix.

    The caller carries out :attr:`request`, passes its result to :meth:`on_leaf_page` or :meth:`on_donor_page`, and
    repeats this until :attr:`request` is None.
    """

    def __init__(
        self, prefix: KeyGroup, keyspaces: KeyspaceMap, depths: DepthCache, count: int, place: Position | None = None
    ) -> None:
        """Begin a query for the records whose keys are in the group ``prefix``, in pages of up to ``count`` records.

        - ``keyspaces``: maps groups to keyspaces.
        - ``depths``: the client's cache of groups.
        - ``place``: the :attr:`position` from which to continue an earlier query; None to begin with the first record.
        """
        self._prefix, self._keyspaces, self._depths, self._count = prefix, keyspaces, depths, count
        self.position = place
        """All records up to this position have been read; None if none has been read."""
        self.records: tuple[Record, ...] = ()
        """The page that the last result completed; often empty."""
        self.request: ReadLeaf | ReadDonor | None = None
        self._donor: tuple[Move, Page] | None = None
        self._start_search(prefix.key if place is None else place[0])

    def on_leaf_page(self, answer: AcceptObjectReply, page: Page) -> None:
        """Process the result of a :class:`ReadLeaf`: the answer to its probe, and the page.

        ``page`` is empty if the keyspace did not accept the key. Raises :class:`KeyGroupMoving` if no keyspace accepts
        the key.
        """
        self.records = ()
        leaf = self._search.on_answer(answer)
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
        """Process the page returned by a :class:`ReadDonor` for ``move``.

        The next request reads the group in the keyspace that receives the records.
        """
        self._donor = move, page
        self._request_leaf()

    def _advance(self, leaf: Accepted, page: Page) -> None:
        self.records = tuple(record for record in page.records if record.present)
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
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths)
        self._donor = None
        self._request_leaf()

    def _request_leaf(self) -> None:
        self.request = ReadLeaf(self._search.probe, self._prefix, self.position, self._count)
