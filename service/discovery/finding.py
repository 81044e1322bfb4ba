"""Finding names: which matrix is asked, how many of its partitions, and which replica of each (§IV.B.2).

Two passes: the sizes of the pairs' matrices first, until one is known that has but one partition; then the matrix with
the fewest partitions. Sizes that were remembered may be old: what cells answer corrects them on the way.

A replica that is not open knows less than its partition's others, so all of those are asked; if there is no open one,
what they have together counts, and for a removed partition the heir is asked, again if it was before: what left the
one was by then in the other. All cells of a matrix know of partitions before anything is put there, so that any answer
tells whether some are left to ask.

A listing returns all names of one pair, as the directories of partial lookup are filled with.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from service.discovery.cell import Answer, Fetch, Find, Match, Record, Standing
from service.discovery.dialogue import Dialogue, latest, sized
from service.discovery.head import Limits
from service.discovery.matrix import Pair, Place, Size, heir
from service.errors import CellsLost

MOST_ROUNDS = 64


class Found(msgspec.Struct, frozen=True):
    """What a query came to, and how."""

    matches: tuple[Match, ...]
    complete: bool
    """Whether these are all there are; otherwise there are at least as many as wanted."""
    asked: Pair | None
    """Whose matrix was asked; None if one of the pairs has no matrix, and so no names."""
    sizes: Mapping[Pair, Size]
    """What was learnt of sizes on the way: worth remembering."""
    cells: int
    """How many were asked for names."""


def find(
    pairs: frozenset[Pair], limit: int, draw: int, limits: Limits, known: Mapping[Pair, Size] | None = None
) -> Dialogue[Found]:
    """Find up to ``limit`` names that have all these pairs, at least one.

    ``draw`` is a random number of at least 32 bits; ``known`` are sizes that were remembered. Raises
    :class:`CellsLost`.
    """
    sizes = dict(known or {})
    while (unknown := unsure(pairs, sizes, draw)) is not None:
        size = yield from sized(unknown, limits)
        if size is None:
            return Found((), True, None, sizes, 0)
        sizes[unknown] = size
    pair = chosen({pair: sizes[pair] for pair in pairs if pair in sizes}, draw)
    asking = Asking(pair, pairs, limit, draw, sizes[pair])
    for _ in range(MOST_ROUNDS):
        if commands := asking.commands():
            asking.answered(commands, (yield commands))
        elif asking.headless:
            size = yield from sized(pair, limits)
            if size is None:
                return Found(asking.matches(), True, pair, _without(sizes, pair), asking.cells)
            asking.corrected(size)
        else:
            return Found(asking.matches(), asking.complete, pair, sizes | {pair: asking.size}, asking.cells)
    raise CellsLost(f"The cells of {pair} kept changing while they were asked. Ask again.")


def unsure(pairs: Iterable[Pair], known: Mapping[Pair, Size], draw: int) -> Pair | None:
    """Return whose size is to be asked before a matrix is chosen; None if one is known that has but one partition.

    We deviate: the paper asks for all sizes at once. Most matrices have one partition, so that the first is enough.
    """
    pairs = sorted(pairs)
    if any(known[pair].partitions == 1 for pair in pairs if pair in known):
        return None
    unknown = [pair for pair in pairs if pair not in known]
    return unknown[draw % len(unknown)] if unknown else None


def chosen(sizes: Mapping[Pair, Size], draw: int) -> Pair:
    """Return whose matrix is to be asked: any of those with the fewest partitions."""
    fewest = min(size.partitions for size in sizes.values())
    best = sorted(pair for pair, size in sizes.items() if size.partitions == fewest)
    return best[draw % len(best)]


def partitions_wanted(asked: int, matches: int, limit: int) -> int:
    """Return how many partitions to ask next, if so many had so many matches: one at first, then at most as many again.

    We deviate: the paper leaves open how many of a matrix's partitions are enough.
    """
    if matches >= limit:
        return 0
    if not asked:
        return 1
    needed = -(-(limit - matches) * asked // matches) if matches else asked
    return min(needed, asked)


def _without(sizes: Mapping[Pair, Size], pair: Pair) -> dict[Pair, Size]:
    return {other: size for other, size in sizes.items() if other != pair}


class Asking:
    """One matrix that is being asked: which cells have answered what. Belongs to one dialogue."""

    def __init__(self, pair: Pair, pairs: frozenset[Pair], limit: int, draw: int, size: Size) -> None:
        self.size = size
        self.cells = 0
        self._pair, self._pairs, self._limit, self._draw = pair, pairs, limit, draw
        self._answers: dict[int, dict[int, Answer]] = {}
        self._done: set[int] = set()
        self._handed: set[int] = set()
        self._found: dict[str, Match] = {}
        self._probed = False

    def commands(self) -> list[Find]:
        """Return what to ask in the next round; nothing if that was all."""
        pending = [partition for partition in self._answers if partition not in self._done]
        fresh = []
        if not pending:
            fresh = self._fresh()[: partitions_wanted(len(self._done), len(self._found), self._limit)]
        return [
            Find(Place(self._pair, partition, row), self._pairs, self._limit)
            for partition in (*pending, *fresh)
            for row in self._rows(partition)
        ]

    def answered(self, commands: Sequence[Find], answers: Sequence[Answer]) -> None:
        """Take in a round's answers."""
        self.cells += len(commands)
        self.size = latest(self.size, *answers)
        for command, answer in zip(commands, answers, strict=True):
            self._answers[command.place.partition][command.place.replica] = answer
            for match in answer.matches:
                before = self._found.get(match.name, match)
                self._found[match.name] = max(before, match, key=lambda one: one.version)
        for partition in sorted(self._answers, reverse=True):
            self._settle(partition)

    def corrected(self, size: Size) -> None:
        """Go on after the head's cell was not there, with the size that others know."""
        self.size = max(self.size, size)
        self._answers[0] = {}
        self._probed = True

    @property
    def headless(self) -> bool:
        """Whether nobody in the first partition knew anything, so that the size must be found out elsewhere."""
        return 0 in self._answers and 0 not in self._done and not self._rows(0)

    @property
    def complete(self) -> bool:
        """Whether all names that there are have been found."""
        return len(self._found) < self._limit and not self._fresh()

    def matches(self) -> tuple[Match, ...]:
        """Return what was found."""
        return tuple(self._found.values())[: self._limit]

    def _fresh(self) -> list[int]:
        count = self.size.partitions
        order = ((self._draw + place) % count for place in range(count))
        return [partition for partition in order if partition not in self._answers]

    def _rows(self, partition: int) -> list[int]:
        answers = self._answers.setdefault(partition, {})
        if not answers:
            return [(self._draw // self.size.partitions + partition) % self.size.replicas]
        return [row for row in range(self.size.replicas) if row not in answers]

    def _settle(self, partition: int) -> None:
        """Tell whether a partition's answers are enough, and ask its heir where it is being removed."""
        answers = self._answers[partition].values()
        self._done.discard(partition)
        if any(answer.stands(Standing.OPEN) for answer in answers):
            self._done.add(partition)
        elif answers and not self._rows(partition):
            if partition == 0 and not self._probed and not any(answer.stands(Standing.FILLING) for answer in answers):
                return
            self._done.add(partition)
            if (
                partition
                and partition not in self._handed
                and any(answer.stands(Standing.CLOSED) for answer in answers)
            ):
                self._handed.add(partition)
                self._answers[heir(partition)] = {}
                self._done.discard(heir(partition))


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
