"""An in-memory store of discovery cells with the semantics of the store's scripts; every command is atomic."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from service.discovery import cell
from service.discovery.cell import CellAnswer, CellState, Command, Match, Membership, NameRecord
from service.discovery.cell_rounds import Rounds
from service.discovery.matrix import CellAddress, CellLoad, Matrix, PairKey

T = TypeVar("T")


class MemoryCells:
    """The cells. Tests set the time ``now_ms`` and the ``rates`` that cells observe."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.members: dict[CellAddress, Membership] = {}
        self.matrices: dict[CellAddress, Matrix] = {}
        self.records: dict[CellAddress, dict[str, NameRecord]] = {}
        self.rates: dict[CellAddress, tuple[float, float]] = {}
        self.command_counts: Counter[type[Command]] = Counter()

    def carry_out(self, command: Command) -> CellAnswer:  # noqa: C901 - one case for each command
        """Execute one command."""
        self.command_counts[type(command)] += 1
        place = command.place
        stored = self._live(place)
        before = self.members.get(place)
        if isinstance(command, cell.UpdateMatrix) and self.matrices.get(place) == command.before:
            self.matrices[place] = command.after
        after = cell.transition(before, command)
        if after is not None:
            self.members[place] = after
        done = after is not None
        matches: tuple[Match, ...] = ()
        records: tuple[NameRecord, ...] = ()
        match command:
            case cell.PutRecords():
                changed = cell.merge_records(stored, command, after)
                stored |= changed
                done = len(changed) == len({record.name for record in command.records})
            case cell.FindNames():
                found = [record for record in stored.values() if record.pairs and command.pairs <= record.pairs]
                matches = tuple(Match(record.name, record.version) for record in found[: command.limit])
            case cell.FetchRecords():
                names = sorted(name for name in stored if name > command.after)[: command.count]
                records = tuple(stored[name] for name in names)
            case cell.CloseCell() if after is not before and not command.keep:
                stored.clear()
            case cell.DropRecords() if after is not None and after.state is CellState.CLOSED:
                for record in command.records:
                    if stored.get(record.name) == record:
                        del stored[record.name]
            case cell.UpdateMatrix():
                done = self.matrices.get(place) == command.after
        return CellAnswer(after, self.matrices.get(place), self._load(place), done, matches, records)

    def run(self, protocol: Rounds[T]) -> T:
        """Execute all rounds of a dialogue without interleaving."""
        try:
            commands = next(protocol)
            while True:
                commands = protocol.send([self.carry_out(command) for command in commands])
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    def lose(self, place: CellAddress) -> None:
        """Delete one cell's data."""
        for part in (self.members, self.matrices, self.records):
            part.pop(place, None)

    def places_of(self, pair: PairKey) -> Sequence[CellAddress]:
        """Return the present and former cells of a pair."""
        return sorted(place for place in self.members if place.pair == pair)

    def _live(self, place: CellAddress) -> dict[str, NameRecord]:
        stored = self.records.setdefault(place, {})
        for name in [name for name, record in stored.items() if record.expires_ms <= self.now_ms]:
            del stored[name]
        return stored

    def _load(self, place: CellAddress) -> CellLoad:
        names = sum(bool(record.pairs) for record in self._live(place).values())
        return CellLoad(names, *self.rates.get(place, (0.0, 0.0)))
