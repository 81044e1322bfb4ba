"""The directory in which searches look up channels and entries (paper on load-balancing matrices, §III-IV).

- The *content name* of a channel or entry is a set of attribute-value pairs.
- Each pair has a *matrix*: a grid of cells in which all names with this pair are registered. The cells share the load.
- Any process may register and find names. Names are registered again before they expire, so lost names return.
- Cells refer to names by 8-byte keys. A table maps these keys to names. It consists of ``BUCKETS`` hashes, each small
  enough for Redis to store it as a listpack.
- A name is never removed before it expires. A process can therefore cache the names that it has read.

Workers also keep lookup directories in memory: lists of the channels that have one pair. The workers read these lists
from the matrices with :class:`MatrixNameReader`.
"""

# Without the cache of names, each query of a popular AV-pair would read the pair's names from the same nodes, and these
# could not be relieved by more replicas of the pair's matrix. A wrong cached size of a matrix is corrected by the
# answers of cells.

import struct
import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from heapq import nlargest
from secrets import randbits

import msgspec
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from service.discovery import matrix_cell, matrix_registration
from service.discovery.av_pairs import ContentKind, Pair
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.cell_rounds import run_together
from service.discovery.matrix import CellAddress, MatrixLimits, MatrixSize, PairKey, home_partition
from service.discovery.matrix_cell import CellAnswer, CellState
from service.discovery.matrix_search import MatrixReaders, PairClause, PairQuery, read_matrix, read_states, search
from service.discovery.partial_lookup.node_shares import NamesOfPair
from service.discovery.postings import NameKey, NameKeys, Posting, name_key, pack
from service.discovery.search_candidates import (
    MAX_WEIGHT,
    CandidateName,
    Candidates,
    Clause,
    QueriedMatrix,
)
from service.discovery.text_search.ranking import clause_importance
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client import redis_client as redis
from service.store.client.redis_client import RedisClient
from service.store.directory.matrix_access import LIMITS, MatrixAccess
from service.store.directory.matrix_cells import MatrixCells
from service.store.directory.vocabulary_store import StoredVocabulary

BUCKETS = 1 << 12
_EXPIRY = struct.Struct(">I")
_CACHED_NAMES = 20_000
_READER_CACHED_NAMES = 100_000


class ContentNameTable:
    """The table of one directory that maps 8-byte keys to names, which are ids of channels or entries.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, client: RedisClient, about: ContentKind) -> None:
        """Create the table. ``about`` selects whose names it contains: those of channels or those of entries."""
        self._redis = client
        self._about = about
        self._cached: dict[NameKey, bytes] = {}
        """At most ``_CACHED_NAMES`` names, as they are stored. A cache that records uses would take longer to read."""

    async def put(self, names: Iterable[str], expires_s: int) -> None:
        """Store names until ``expires_s`` (Unix time), unless they are already stored for longer."""
        expiry = _EXPIRY.pack(expires_s)
        by_bucket: dict[str, list[redis.Value]] = {}
        for name in names:
            key = name_key(name)
            by_bucket.setdefault(self._bucket(key), []).extend((_field(key), expiry + name.encode()))
        await self._redis.call_many(
            [redis.script_command("names_put", (bucket,), *parts) for bucket, parts in by_bucket.items()]
        )

    async def resolve(self, name_keys: Sequence[NameKey]) -> dict[NameKey, str]:
        """Map each key to its name. Keys of names that are no longer registered are omitted."""
        earliest = _EXPIRY.pack(int(time.time()) + 1)  # in bytes, which have the order of the times
        found = {key: value for key in name_keys if (value := self._cached.get(key, b"")) >= earliest}
        missing = [key for key in name_keys if key not in found]
        held = await self._redis.call_many([("HGET", self._bucket(key), _field(key)) for key in missing])
        read = {key: value for key, value in zip(missing, held, strict=True) if value and value >= earliest}
        if len(self._cached) + len(read) > _CACHED_NAMES:
            self._cached.clear()
        self._cached |= read
        found |= read
        return {key: found[key][_EXPIRY.size :].decode() for key in name_keys if key in found}

    def _bucket(self, key: NameKey) -> str:
        return keys.names_bucket(self._about, key % BUCKETS)


def _field(key: NameKey) -> bytes:
    return key.to_bytes(8)


_ONE = MatrixSize()


class ContentName(msgspec.Struct, frozen=True):
    """A channel or entry to register in a directory, with the attribute-value pairs by which searches find it.

    - ``id``: the id of the channel or entry.
    - ``pairs``: maps each pair to its weight, from 1 to 255. The weight expresses how characteristic the pair is
      of the channel or entry.
    """

    id: str
    pairs: Mapping[AvPair, int]


class Directory(MatrixAccess):
    """A directory in which searches find channels, or entries, by their attribute-value pairs.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(
        self, redis: RedisClient, cells: MatrixCells, about: ContentKind, limits: MatrixLimits = LIMITS
    ) -> None:
        """Create the directory, whose data is stored in ``cells``.

        - ``about`` selects the directory: that of channels or that of entries.
        - ``limits``: limits on the load of a cell, which stores a part of the directory.
        """
        super().__init__(redis, cells, about, limits)
        self._names = ContentNameTable(redis, about)
        self.vocabulary = StoredVocabulary(redis, about)

    async def register(self, names: Sequence[ContentName], expires_s: float) -> None:
        """Register or refresh channels or entries, so that searches find them until ``expires_s`` (Unix time).

        A registration that already lasts longer is not changed. Attribute-value pairs that a channel or entry no
        longer has stay registered; remove them by :meth:`withdraw`. Raises :class:`service.errors.CellsUnavailable`
        if cells changed or disappeared too often during the call.
        """
        expiry_s = int(expires_s)
        await self._names.put((name.id for name in names), expiry_s)
        given = [
            (self.key(pair), Posting(name_key(name.id), max(1, min(MAX_WEIGHT, weight)), expiry_s))
            for name in names
            for pair, weight in name.pairs.items()
        ]
        left = await self._store_postings(given)
        if left:
            dialogues = [matrix_registration.register(pair, posting, self._sizes.get(pair)) for pair, posting in left]
            self._learn([pair for pair, _ in left], await self._run(run_together(dialogues)))

    async def withdraw(self, name: str, pairs: Iterable[AvPair], expires_s: float) -> None:
        """Remove a channel or entry from attribute-value pairs that it no longer has.

        ``name`` is the id of the channel or entry. A record of each removal is kept until ``expires_s`` (Unix time),
        which must not be earlier than the expiry of any registration of ``name``. Otherwise the registration remains
        valid. Raises :class:`service.errors.CellsUnavailable` if cells changed or disappeared too often during the
        call.
        """
        posting = Posting(name_key(name), 0, int(expires_s))
        given = [(self.key(pair), posting) for pair in pairs]
        stored = {pair for pair, _ in given} - {pair for pair, _ in await self._store_postings(given)}
        left = [pair for pair, _ in given if pair not in stored or self._sizes.get(pair, _ONE).partitions > 1]
        if left:
            dialogues = [matrix_registration.withdraw(pair, posting, self._sizes.get(pair)) for pair in left]
            self._learn(left, await self._run(run_together(dialogues)))

    async def frequencies(self, pairs: Iterable[AvPair], cached: MatrixReaders) -> dict[AvPair, int]:
        """Return approximately how many names have each attribute-value pair.

        ``cached`` is data that earlier calls for the same query have read. This call adds what it reads. Raises
        :class:`service.errors.CellsUnavailable` if cells changed or disappeared too often during the call.
        """
        by_key = {self.key(pair): pair for pair in pairs}
        sizes = self._known_sizes(by_key)
        await self._run(read_states(by_key, randbits(48), time.time(), sizes, cached), is_query=True)
        return {pair: cached[key].frequency for key, pair in by_key.items()}

    async def find(
        self,
        clauses: Sequence[Clause],
        excluded: Collection[AvPair],
        max_count: int,
        cached: MatrixReaders | None = None,
    ) -> Candidates:
        """Return up to ``max_count`` names that match a query, best first.

        - ``clauses``: at least one clause. A name satisfies a clause if it has one of the clause's attribute-value
          pairs. A matching name satisfies every required clause, and at least one optional clause if there are any.
        - ``excluded``: pairs that a matching name must not have.
        - ``cached``: data that earlier searches for the same query have read. This search adds what it reads.

        Names that satisfy more optional clauses come first. Names that satisfy equally many are sorted by score,
        highest first. Raises :class:`service.errors.CellsUnavailable` if cells changed or disappeared too often during
        the call.
        """
        began_s = time.perf_counter()
        asked = [
            PairClause(tuple((self.key(each.pair), each.factor) for each in clause.alternatives), clause.is_optional)
            for clause in clauses
        ]
        without = [self.key(pair) for pair in excluded]
        known = self._known_sizes((*(pair for clause in asked for pair, _ in clause.alternatives), *without))

        def importance(index: int, frequencies: Sequence[int]) -> float:
            alternatives = (each.pair for each in clauses[index].alternatives)
            return clause_importance(clauses[index], dict(zip(alternatives, frequencies, strict=True)))

        query, readers = PairQuery(asked, without, max_count, importance), {} if cached is None else cached
        outcome = await self._run(search(query, randbits(48), time.time(), known, readers), is_query=True)
        self._learn(list(outcome.sizes), list(outcome.sizes.values()))
        names = await self._names.resolve(outcome.names.tolist())
        found = [
            CandidateName(
                names[key],
                score,
                coverage,
                tuple(weights),
                tuple(clause.alternatives[choice].pair for clause, choice in zip(clauses, choices, strict=True)),
            )
            for key, score, coverage, weights, choices in zip(
                outcome.names.tolist(),
                outcome.scores.tolist(),
                outcome.coverages.tolist(),
                outcome.weights.tolist(),
                outcome.choices.tolist(),
                strict=True,
            )
            if key in names
        ]
        texts = {self.key(each.pair): each.pair for clause in clauses for each in clause.alternatives}
        return Candidates(
            tuple(found),
            outcome.total,
            outcome.complete,
            {text: outcome.frequencies[pair] for pair, text in texts.items()},
            tuple(QueriedMatrix(text, outcome.sizes[pair], outcome.cells[pair]) for pair, text in texts.items()),
            time.perf_counter() - began_s,
        )

    async def weights_of(self, pair: AvPair) -> tuple[NameKeys, NDArray[np.uint8]]:
        """Return (keys, weights): the names (channels or entries) that have an attribute-value pair.

        The keys are sorted, and the weights, from 1 to 255, are in the same order. A weight expresses how
        characteristic the pair is of the channel or entry. Raises :class:`service.errors.CellsUnavailable` if cells
        changed or disappeared too often during the call.
        """
        key = self.key(pair)
        names, weights, size = await self._run(read_matrix(key, randbits(48), time.time(), self._sizes.get(key)))
        self._learn([key], [size])
        return names, weights

    async def resolve(self, name_keys: Sequence[NameKey]) -> dict[NameKey, str]:
        """Map each key to its name. Keys of names that are no longer registered are omitted."""
        return await self._names.resolve(name_keys)

    async def _store_postings(self, given: Sequence[tuple[PairKey, Posting]]) -> list[tuple[PairKey, Posting]]:
        """Store postings (records of names) in cells, with one command per cell; return those that were not stored.

        Each item of ``given`` and of the result is a tuple: the digest of an attribute-value pair, and the posting of
        a name with this pair. A posting is not stored if this process has cached a wrong size of the pair's matrix,
        or if a cell is missing.
        """
        by_cell: dict[CellAddress, list[Posting]] = {}
        for pair, posting in given:
            size = self._sizes.get(pair, _ONE)
            partition = home_partition(posting.name, size.partitions)
            for row in size.rows:
                by_cell.setdefault(CellAddress(pair, partition, row), []).append(posting)
        assumed = {place.pair: self._sizes.get(place.pair, _ONE) for place in by_cell}
        puts = [matrix_cell.PutPostings(place, pack(own), assumed[place.pair]) for place, own in by_cell.items()]
        answers = await self.cells.carry_out(puts)
        self._count(puts, answers)
        left = {
            (put.place.pair, posting)
            for put, answer in zip(puts, answers, strict=True)
            if not self._is_stored(put, answer, assumed[put.place.pair])
            for posting in by_cell[put.place]
        }
        return [each for each in given if each in left]

    def _is_stored(self, put: matrix_cell.PutPostings, answer: CellAnswer, assumed: MatrixSize) -> bool:
        """Return whether a cell has stored postings (records of names) where searches will find them.

        - ``put``: the command with the postings.
        - ``answer``: the cell's answer to the command.
        - ``assumed``: the matrix size from which the caller computed the cell's address.

        If the answer contains a different size, cache it and return False, because searches look in other cells. If
        both sizes have only one cell, the difference does not matter.
        """
        pair, member = put.place.pair, answer.member
        if member is None or answer.is_in(CellState.CLOSED):
            return answer.done and member is None
        if member.size != assumed:
            self._sizes[pair] = max(member.size, self._sizes.get(pair, member.size))
        if not answer.done:
            return False
        return member.size == assumed or (assumed == _ONE and member.size.partitions * member.size.replicas == 1)

    def _known_sizes(self, pairs: Iterable[PairKey]) -> dict[PairKey, MatrixSize]:
        return {pair: self._sizes[pair] for pair in pairs if pair in self._sizes}

    def _learn(self, pairs: Sequence[PairKey], sizes: Sequence[MatrixSize]) -> None:
        """Cache the size of each attribute-value pair's matrix; ``pairs`` and ``sizes`` are in the same order.

        A one-cell matrix is not cached, because that size is assumed by default.
        """
        for pair, size in zip(pairs, sizes, strict=True):
            if size == _ONE:
                self._sizes.pop(pair, None)
            else:
                self._sizes[pair] = size


class MatrixNameReader:
    """Finds the channels that have an attribute-value pair, and the pairs that channels have.

    The name of a channel is its id. Methods may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, directory: Directory, channels: Channels) -> None:
        """Create a reader of ``directory``, which is the directory of channels.

        The pairs of a channel are read from ``channels``.
        """
        self._directory = directory
        self._channels = channels
        self._names: LRUCache[NameKey, str] = LRUCache(_READER_CACHED_NAMES)

    async def names_of(self, pair: Pair, max_count: int, known_mark: Hashable) -> NamesOfPair | None:
        """Return the best channels that have an attribute-value pair, and how many channels have it in total.

        The best channels are those in which the pair has the highest weights. At most ``max_count`` are returned.
        ``known_mark`` is the ``mark`` of an earlier result that the caller still has, or None. Return None if nothing
        has changed since that result. Raises :class:`service.errors.CellsUnavailable` if cells changed or disappeared
        too often during the call.
        """
        name_keys, key_weights = await self._directory.weights_of(pair)
        mark = hash((name_keys.tobytes(), key_weights.tobytes()))
        if mark == known_mark:
            return None
        weights = dict(zip(name_keys.tolist(), key_weights.tolist(), strict=True))
        best = nlargest(max_count, weights, key=lambda key: (weights[key], -key))
        self._names.update(await self._directory.resolve([key for key in best if key not in self._names]))
        named = [(self._names[key], weights[key]) for key in best if key in self._names]
        return NamesOfPair(named, len(weights) - len(best) + len(named), mark)

    async def pairs_of(self, names: Sequence[str]) -> list[frozenset[Pair]]:
        """Return the set of attribute-value pairs of each channel, in the order of ``names``.

        The set is empty for a channel that searches cannot find.
        """
        return await self._channels.content_names(names)
