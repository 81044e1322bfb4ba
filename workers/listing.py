"""Directories are read from matrices here: the port of ``workers.directory``, on cells."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from service.discovery.cell import Answer, Command
from service.discovery.dialogue import Dialogue
from service.discovery.listing import listed
from service.discovery.load import Limits
from service.discovery.partial.entries import Listed

T = TypeVar("T")

CarryOut = Callable[[Sequence[Command]], Awaitable[list[Answer]]]
"""A store's cells."""


class Listing:
    """The names of matrices in a store's cells. Its methods raise what those do."""

    def __init__(
        self, carry_out: CarryOut, key: Callable[[str], str], limits: Limits, draw: Callable[[], float]
    ) -> None:
        """``key`` says what stands for an AV-pair in cells, ``draw`` is a random number in [0, 1)."""
        self.key = key
        self._carry_out = carry_out
        self._limits = limits
        self._draw = draw

    async def names(self, pair: str, most: int) -> list[Listed]:
        """Return names that have this AV-pair, unexpired ones, up to so many."""
        draw = int(self._draw() * (1 << 32))
        records = await self._led(listed(self.key(pair), most, self._limits, draw))
        return [Listed(record.name, record.version, record.pairs) for record in records]

    async def _led(self, dialogue: Dialogue[T]) -> T:
        try:
            commands = next(dialogue)
            while True:
                commands = dialogue.send(await self._carry_out(commands))
        except StopIteration as stopped:
            result: T = stopped.value
            return result
