"""The world of content discovery §V: names and queries over 50 attributes of 200 values, on 10,000 nodes.

The paper draws its skews (Figures 7 and 8). *Names*: a Zipf law of exponent 0.88 whose first pairs would be in more
names than there are, so that we cut it off at what the five most popular have, 24 %. *Queries*: each pair is in a query
with the probability 0.5/rank, by itself; of 100,000 such queries 0.56 % are empty, and the paper has 99,473. They have
4.9 pairs on average (the paper: four). The ranks of pairs are the same in both.
"""

from heapq import heapify, heappop, heappush

import msgspec
import numpy as np

from service.simulate.trace import Floats, Ints

ATTRIBUTES = 50
VALUES = 200
PAIRS = ATTRIBUTES * VALUES
NODES = 10_000
PER_NAME = 20
MOST_PAIRS = 10
NAMES = 100_000
QUERIES = 100_000

DELAY_S = 0.1
"""Of one message over the overlay; exponential."""
SERVICE_S = 0.001
"""What a node takes for one; exponential. It is never busy for more than a fifth of its time, so none waits here."""

ZIPF_NAMES = 0.88
MOST_POPULAR = 0.24
ZIPF_K = 0.5


class Queries(msgspec.Struct, frozen=True):
    """Pairs of queries, flat: those of query q are from ``begin[q]`` to ``begin[q + 1]``."""

    pair: Ints
    begin: Ints

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.begin) - 1

    def first(self, count: int) -> "Queries":
        """Return the first ones."""
        return Queries(self.pair[: self.begin[count]], self.begin[: count + 1])


def uniform_names(rng: np.random.Generator, count: int = NAMES) -> Ints:
    """Return names, each a row of distinct pairs, none more frequent than another."""
    values = rng.integers(VALUES, size=(count, PER_NAME))
    return _attributes(rng, count) * VALUES + values


def skewed_names(rng: np.random.Generator, count: int = NAMES) -> Ints:
    """Return names with Zipf-like pairs; pair 0 is the most popular."""
    popularity = name_popularity()
    slots = _by_attribute(popularity)
    attributes = _attributes(rng, count)
    names = np.empty((count, PER_NAME), dtype=np.int64)
    for attribute in range(ATTRIBUTES):
        where = attributes == attribute
        share = np.cumsum(popularity[slots[attribute]])
        drawn = np.searchsorted(share, rng.random(int(where.sum())) * share[-1], side="right")
        names[where] = slots[attribute][drawn]
    return names


def name_popularity() -> Floats:
    """Return in which share of the names each pair is; together they are ``PER_NAME``."""
    law = np.arange(1, PAIRS + 1) ** -ZIPF_NAMES
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(MOST_POPULAR, middle * law).sum() < PER_NAME else (low, middle)
    popularity: Floats = np.minimum(MOST_POPULAR, low * law)
    return popularity


def zipf_queries(rng: np.random.Generator, count: int = QUERIES) -> Queries:
    """Return queries of one to ten pairs; fewer of them than drawn, because the empty ones are left out."""
    often = 64
    dense = rng.random((count, often)) < ZIPF_K / np.arange(1, often + 1)
    query, pair = np.nonzero(dense)
    ranks = np.arange(often + 1, PAIRS + 1)
    rare = np.repeat(ranks - 1, rng.binomial(count, ZIPF_K / ranks))
    keys = np.unique(np.concatenate([query * PAIRS + pair, rng.integers(count, size=len(rare)) * PAIRS + rare]))
    keys = rng.permuted(keys)
    keys = keys[np.argsort(keys // PAIRS, kind="stable")]
    query, pair = keys // PAIRS, keys % PAIRS
    rank_in_query = np.arange(len(query)) - np.searchsorted(query, query)
    query, pair = query[rank_in_query < MOST_PAIRS], pair[rank_in_query < MOST_PAIRS]
    _, begin = np.unique(query, return_index=True)
    return Queries(pair, np.append(begin, len(pair)))


def _attributes(rng: np.random.Generator, count: int) -> Ints:
    drawn: Ints = np.argpartition(rng.random((count, ATTRIBUTES), dtype=np.float32), PER_NAME, axis=1)[:, :PER_NAME]
    return drawn


def _by_attribute(popularity: Floats) -> list[Ints]:
    """Share pairs out so that all attributes are in equally many names: the next to what is the least popular."""
    pairs: list[list[int]] = [[] for _ in range(ATTRIBUTES)]
    heap = [(0.0, attribute) for attribute in range(ATTRIBUTES)]
    heapify(heap)
    for pair, share in enumerate(popularity):
        total, attribute = heappop(heap)
        pairs[attribute].append(pair)
        if len(pairs[attribute]) < VALUES:
            heappush(heap, (total + float(share), attribute))
    return [np.array(values) for values in pairs]
