"""Cells in memory: what the store's scripts do, each command an instant in one cell."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from service.discovery import cell
from service.discovery.cell import Answer, Command, Match, Membership, Record, Standing
from service.discovery.cell_rounds import Dialogue
from service.discovery.matrix import Load, Matrix, Pair, Place

T = TypeVar("T")


class MemoryCells:
    """A store of cells. Time is ``now_ms``, which tests move; ``rates`` are what tests say cells observe."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.members: dict[Place, Membership] = {}
        self.matrices: dict[Place, Matrix] = {}
        self.records: dict[Place, dict[str, Record]] = {}
        self.rates: dict[Place, tuple[float, float]] = {}
        self.carried_out: Counter[type[Command]] = Counter()

    def carry_out(self, command: Command) -> Answer:  # noqa: C901 - one case for each command
        """Do one command."""
        self.carried_out[type(command)] += 1
        place = command.place
        held = self._live(place)
        before = self.members.get(place)
        if isinstance(command, cell.Lead) and self.matrices.get(place) == command.before:
            self.matrices[place] = command.after
        after = cell.transition(before, command)
        if after is not None:
            self.members[place] = after
        done = after is not None
        matches: tuple[Match, ...] = ()
        records: tuple[Record, ...] = ()
        match command:
            case cell.Put():
                changed = cell.put(held, command, after)
                held |= changed
                done = len(changed) == len({record.name for record in command.records})
            case cell.Find():
                found = [record for record in held.values() if record.pairs and command.pairs <= record.pairs]
                matches = tuple(Match(record.name, record.version) for record in found[: command.limit])
            case cell.Fetch():
                names = sorted(name for name in held if name > command.after)[: command.count]
                records = tuple(held[name] for name in names)
            case cell.Close() if after is not before and not command.keep:
                held.clear()
            case cell.Drop() if after is not None and after.standing is Standing.CLOSED:
                for record in command.records:
                    if held.get(record.name) == record:
                        del held[record.name]
            case cell.Lead():
                done = self.matrices.get(place) == command.after
        return Answer(after, self.matrices.get(place), self._load(place), done, matches, records)

    def lead(self, dialogue: Dialogue[T]) -> T:
        """Lead a dialogue to its end, with nothing in between."""
        try:
            commands = next(dialogue)
            while True:
                commands = dialogue.send([self.carry_out(command) for command in commands])
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    def lose(self, place: Place) -> None:
        """Lose all that one cell had."""
        for part in (self.members, self.matrices, self.records):
            part.pop(place, None)

    def places_of(self, pair: Pair) -> Sequence[Place]:
        """Return the cells that a pair has, or had."""
        return sorted(place for place in self.members if place.pair == pair)

    def _live(self, place: Place) -> dict[str, Record]:
        held = self.records.setdefault(place, {})
        for name in [name for name, record in held.items() if record.expires_ms <= self.now_ms]:
            del held[name]
        return held

    def _load(self, place: Place) -> Load:
        names = sum(bool(record.pairs) for record in self._live(place).values())
        return Load(names, *self.rates.get(place, (0.0, 0.0)))
