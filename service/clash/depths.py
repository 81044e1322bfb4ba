"""What a client remembers of depths: the leaf groups it has met (CLASH §V.C and §VI.A)."""

from bisect import bisect_right

from service.clash.groups import KeyGroup


class Depths:
    """Disjoint groups in the order of their keys. Whatever is learnt replaces what it contradicts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []

    def __len__(self) -> int:
        return len(self._groups)

    def learn(self, group: KeyGroup) -> None:
        """Remember that this group is a leaf."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]

    def depth(self, key: int) -> int | None:
        """Return the depth to try first: that of the key's group, or of the group nearest to it; None knows nothing."""
        place = bisect_right(self._starts, key)
        beside = self._groups[max(place - 1, 0) : place + 1]
        nearest = max(beside, key=lambda group: group.common_bits(key), default=None)
        return nearest.depth if nearest else None
