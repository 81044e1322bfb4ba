"""The leaf groups under a prefix: the units into which a fan-out is divided (the paper's future work, §VII).

Each unit is a prefix of its own: a :class:`~service.clash.walk.Walk` reads it, wherever it may have gone by then.
"""

from service.clash.accepting import Answer
from service.clash.depths import Depths
from service.clash.groups import KeyGroup
from service.clash.mapping import Map
from service.clash.search import DepthSearch, Probe


class Units:
    """One search for all leaf groups. Ask :attr:`probe` and hand over the answer until there is none.

    What it finds never overlaps and leaves nothing out, also if groups split and merge while it goes on: of a group
    that has grown to the left meanwhile, only the part counts that is not found yet.
    """

    def __init__(self, prefix: KeyGroup, keyspaces: Map, depths: Depths) -> None:
        self._prefix, self._keyspaces, self._depths = prefix, keyspaces, depths
        self.probe: Probe | None = None
        self._look(prefix.key)

    def answered(self, answer: Answer) -> KeyGroup | None:
        """Return the next unit, if that was found; raises :class:`GroupsMoving` as the search does."""
        found = self._search.answered(answer)
        if found is None:
            self.probe = self._search.probe
            return None
        self._depths.learn(found.group, self._search.depth)
        unit = found.group.shared(self._prefix) or self._prefix
        while unit.key < self._key:
            unit = unit.right if self._key in unit.right else unit.left
        if unit.last < self._prefix.last:
            self._look(unit.last + 1)
        else:
            self.probe = None
        return unit

    def _look(self, key: int) -> None:
        self._key = key
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths.depth(key))
        self.probe = self._search.probe
