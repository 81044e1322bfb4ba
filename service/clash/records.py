"""Subscriptions as they lie in a keyspace, ordered by key and id; a group is a range of them.

A record carries the ``seq`` of its subscriber's change of mind: the greater one is the newer, wherever and in whatever
order two versions meet. So copies can be taken while people go on writing, and taken twice. An end leaves a record
that is not ``present`` (a tombstone) in a leaf that is still being filled, for the beginning that may yet arrive there;
once it is filled, tombstones go.
"""

from collections.abc import Iterable, Sequence

import msgspec

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
