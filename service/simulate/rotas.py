"""The rotas that owners have made, the present one of each channel and all before: production's, one by one."""

import numpy as np

from service.corona.schedule import Rota, begun, changed
from service.simulate.nearest import Trie
from service.simulate.timetable import Book, Timetable
from service.simulate.trace import Floats, Ints
from service.simulate.workload import Channels, Setup


class Rotas:
    """Of the channels that are followed; the others have none."""

    def __init__(self, setup: Setup, channels: Channels, followed: Ints) -> None:
        self._interval_s, self._channels = setup.poll_interval_s, setup.channels
        self._ids = channels.ids()
        self._present: dict[int, Rota] = {}
        self._book = Book()
        self._repeats = setup.restless
        """Whether an owner tells what stays as it was: members may have missed it."""
        self._size: Floats = np.zeros(setup.channels)
        """By channel, what its present rota was made for."""
        self.followed = followed

    def begin(self, numbers: Ints, sizes: Floats, ring: int, trie: Trie, now_s: float) -> None:
        """Begin anew the rotas of those that are followed, with n of their own out of all ``sizes``."""
        chosen = numbers[np.isin(numbers, self.followed, assume_unique=True)]
        for number, size in zip(chosen.tolist(), sizes[chosen].tolist(), strict=True):
            self._write(number, begun(self._ids[number], size, len(trie.nodes), self._interval_s, now_s), ring, now_s)
        self._size[chosen] = sizes[chosen]

    def change(self, numbers: Ints, sizes: Floats, ring: int, trie: Trie, now_s: float) -> None:
        """Go on with another n, or for another ring, from the next poll of each on."""
        nodes = len(trie.nodes)
        if not self._repeats:
            numbers = numbers[self._size[numbers] != sizes[numbers]]
        for number, size in zip(numbers.tolist(), sizes[numbers].tolist(), strict=True):
            if (rota := self._present.get(number)) is not None:
                self._write(number, changed(rota, size, nodes, self._interval_s, now_s), ring, now_s)
        self._size[numbers] = sizes[numbers]

    def timetable(self) -> Timetable:
        """Return everything that was ever in force."""
        return self._book.timetable(self._channels)

    def _write(self, number: int, rota: Rota, ring: int, now_s: float) -> None:
        self._present[number] = rota
        self._book.write(number, rota, now_s, ring)
