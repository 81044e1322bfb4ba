"""Reader of the names of channels with an AV-pair (attribute and value).

Workers list these names in lookup directories in memory.
"""

from collections.abc import Hashable, Sequence
from heapq import nlargest

from cachetools import LRUCache

from service.discovery.av_pairs import Pair
from service.discovery.partial_lookup.node_shares import NamesOfPair
from service.discovery.postings import NameKey
from service.store.channels.channels import Channels
from service.store.directory.matrix_directory import Directory

_CACHED_NAMES = 100_000


class MatrixNameReader:
    """Reads names of channels from the matrices. Methods may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, directory: Directory, channels: Channels) -> None:
        """Create a reader of the names of channels in ``directory``."""
        self._directory = directory
        self._channels = channels
        self._names: LRUCache[NameKey, str] = LRUCache(_CACHED_NAMES)

    async def names_of(self, pair: Pair, max_count: int, known_mark: Hashable) -> NamesOfPair | None:
        """Return the ``max_count`` best names with an AV-pair, those with the greatest weights first.

        ``known_mark`` is the ``mark`` of the caller's last result; None if there is none. If no name or weight has
        changed since, the result is None. Raises :class:`service.errors.CellsUnavailable`.
        """
        weights = await self._directory.weights_of(pair)
        mark = hash(frozenset(weights.items()))
        if mark == known_mark:
            return None
        best = nlargest(max_count, weights, key=lambda key: (weights[key], -key))
        self._names.update(await self._directory.resolve([key for key in best if key not in self._names]))
        named = [(self._names[key], weights[key]) for key in best if key in self._names]
        return NamesOfPair(named, len(weights) - len(best) + len(named), mark)

    async def pairs_of(self, names: Sequence[str]) -> list[frozenset[Pair]]:
        """Return all AV-pairs of each name, in order; an empty set for a channel that is not registered."""
        return await self._channels.content_names(names)
