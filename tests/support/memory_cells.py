"""An in-memory store of discovery cells with the semantics of the store's scripts; every command is atomic."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from service.discovery import matrix_cell
from service.discovery.cell_rounds import Rounds
from service.discovery.matrix import CellAddress, CellLoad, Matrix, PairKey
from service.discovery.matrix_cell import CellAnswer, CellState, Command, Membership
from service.discovery.postings import NameKey, Posting, pack, unpack

T = TypeVar("T")

FEW = 4
"""Number of postings that are returned together with a cell's state."""


class MemoryCells:
    """The cells. Tests set the time ``now_s`` and the ``rates`` that cells observe."""

    def __init__(self) -> None:
        self.now_s = 0
        self.members: dict[CellAddress, Membership] = {}
        self.matrices: dict[CellAddress, Matrix] = {}
        self.postings: dict[CellAddress, dict[NameKey, Posting]] = {}
        self.rates: dict[CellAddress, tuple[float, float]] = {}
        self.command_counts: Counter[type[Command]] = Counter()

    def carry_out(self, command: Command) -> CellAnswer:  # noqa: C901 - one case for each command
        """Execute one command."""
        self.command_counts[type(command)] += 1
        place = command.place
        stored = self._live(place)
        before = self.members.get(place)
        if isinstance(command, matrix_cell.UpdateMatrix) and self.matrices.get(place) == command.before:
            self.matrices[place] = command.after
        after = matrix_cell.transition(before, command)
        if after is not None:
            self.members[place] = after
        done = after is not None
        postings: bytes | None = None
        match command:
            case matrix_cell.PutPostings():
                changed, done = matrix_cell.merge_postings(stored, command, after, self.now_s)
                stored |= changed
            case matrix_cell.ReadState() if len(stored) <= FEW:
                postings = pack(stored.values())
            case matrix_cell.ReadPostings(names=names):
                postings = pack(each for each in stored.values() if names is None or each.name in names)
            case matrix_cell.FetchPostings():
                ordered = sorted(name for name in stored if name > command.after)[: command.count]
                postings = pack(stored[name] for name in ordered)
            case matrix_cell.CloseCell() if after is not before and not command.keep:
                stored.clear()
            case matrix_cell.DropPostings() if after is not None and after.state is CellState.CLOSED:
                for posting in unpack(command.postings):
                    if stored.get(posting.name) == posting:
                        del stored[posting.name]
            case matrix_cell.UpdateMatrix():
                done = self.matrices.get(place) == command.after
        return CellAnswer(after, self.matrices.get(place), self._load(place), done, postings)

    def run(self, protocol: Rounds[T]) -> T:
        """Execute all rounds of a protocol without interleaving, and return the result of the protocol."""
        try:
            commands = next(protocol)
            while True:
                commands = protocol.send([self.carry_out(command) for command in commands])
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    def lose(self, place: CellAddress) -> None:
        """Delete one cell's data."""
        for part in (self.members, self.matrices, self.postings):
            part.pop(place, None)

    def places_of(self, pair: PairKey) -> Sequence[CellAddress]:
        """Return the addresses of the present and former cells of an attribute-value pair."""
        return sorted(place for place in self.members if place.pair == pair)

    def _live(self, place: CellAddress) -> dict[NameKey, Posting]:
        stored = self.postings.setdefault(place, {})
        for name in [name for name, posting in stored.items() if posting.expires_s <= self.now_s]:
            del stored[name]
        return stored

    def _load(self, place: CellAddress) -> CellLoad:
        return CellLoad(len(self._live(place)), *self.rates.get(place, (0.0, 0.0)))
