"""What a client remembers of depths: the leaf groups it has met, and what leads to them (CLASH §V.C and §VI.A)."""

from bisect import bisect_right

from service.clash.groups import KeyGroup


class Depths:
    """Disjoint groups in the order of their keys. Whatever is learnt replaces what it contradicts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []
        self._depths: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def learn(self, group: KeyGroup, depth: int) -> None:
        """Remember that this group is a leaf, and that this depth leads to it (:attr:`DepthSearch.depth`)."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]
        self._depths[low:high] = [depth]

    def depth(self, key: int) -> int | None:
        """Return the depth to try first: of the key's group, or of the group nearest to it; None knows nothing."""
        place = bisect_right(self._starts, key)
        beside = range(max(place - 1, 0), min(place + 1, len(self._groups)))
        nearest = max(beside, key=lambda at: self._groups[at].common_bits(key), default=None)
        return None if nearest is None else self._depths[nearest]
