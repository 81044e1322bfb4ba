"""Listing a matrix: the names that have one pair, as the directories of partial lookup are filled with."""

from service.discovery.cell import Fetch, Record, Standing
from service.discovery.dialogue import Dialogue
from service.discovery.load import Limits
from service.discovery.matrix import Pair, Place
from service.discovery.sizing import sized

PAGE = 2000
"""Records that are read at once."""


def listed(pair: Pair, most: int, limits: Limits, draw: int) -> Dialogue[list[Record]]:
    """Return the records of a matrix that are not withdrawn, of the first partitions that have ``most``, or of all.

    Each partition's open replica is read, beginning with a random one: ``draw``. A partition without one is left
    out, as its names are being filled in elsewhere; the next listing has them.
    """
    size = yield from sized(pair, limits)
    found: dict[str, Record] = {}
    if size is None:
        return []
    for partition in range(size.partitions):
        for row in range(size.replicas):
            read = yield from _read(Place(pair, partition, (draw + row) % size.replicas), most - len(found))
            if read is not None:
                found |= {record.name: record for record in read}
                break
        if len(found) >= most:
            break
    return list(found.values())


def _read(place: Place, most: int) -> Dialogue[list[Record] | None]:
    """Return a cell's records; None if it is not open, and so may lack some."""
    found: list[Record] = []
    after = ""
    while len(found) < most:
        (answer,) = yield [Fetch(place, after, PAGE)]
        if not answer.stands(Standing.OPEN):
            return None
        if not answer.records:
            break
        found += (record for record in answer.records if record.pairs)
        after = answer.records[-1].name
    return found[:most]
