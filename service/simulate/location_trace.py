"""A reference stream of SURGE's kind (§III.C), and the caches that it fills.

50,000 unique files with Zipf's popularity, the least of which is asked for once: 570,000 requests. Sizes are lognormal
(SURGE: mu 9.357, sigma 1.318) with a Pareto tail above 133 kB (alpha 1.1), from 75 bytes to 8.69 MB. Each is on the
disk of one server for ever. A cache has 420 kB, in LRU order; a larger file is not kept.

We deviate: the tail has 0.2 % of the files instead of SURGE's 7 %, which gives the paper's mean of 21 kB; with 7 % it
would be 69 kB, and a cache would have 6 files instead of 20.
How soon a file is asked for again is SURGE's, too: its place in a stack of all files, the last one asked for on top,
is lognormal (mu 1.5, sigma 0.80); of the five files around there one is taken, by how often each is still to come. The
stream is dealt out to the servers at random.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import NamedTuple

import numpy as np

LEAST_BYTES, MOST_BYTES = 75, 8_690_000
TAIL_SHARE, TAIL_BYTES, TAIL_ALPHA = 0.002, 133_000, 1.1
MU, SIGMA = 9.357, 1.318
CACHE_BYTES = 420_000
STACK_MU, STACK_SIGMA, AROUND = 1.5, 0.80, 2


class Trace(NamedTuple):
    """``requests`` are (server, file) in order; ``disks`` says on which server's disk a file is."""

    sizes: list[int]
    disks: list[int]
    requests: list[tuple[int, int]]


def trace(servers: int, files: int, rng: np.random.Generator) -> Trace:
    """Draw files, and requests for all of them."""
    body = np.exp(rng.normal(MU, SIGMA, 2 * files))
    body = body[body < TAIL_BYTES][:files]
    tail = TAIL_BYTES * (1 - rng.random(files)) ** (-1 / TAIL_ALPHA)
    sizes = np.clip(np.where(rng.random(files) < TAIL_SHARE, tail, body), LEAST_BYTES, MOST_BYTES).astype(int)
    asked = _stream(files, rng)
    disks = rng.permutation(np.arange(files) % servers)
    return Trace(
        sizes.tolist(), disks.tolist(), list(zip(rng.integers(0, servers, len(asked)).tolist(), asked, strict=True))
    )


def _stream(files: int, rng: np.random.Generator) -> list[int]:
    wanted = files / np.arange(1, files + 1)
    left: list[int] = (np.floor(wanted) + (rng.random(files) < wanted % 1)).astype(int).tolist()
    stack: list[int] = rng.permutation(files).tolist()
    stream: list[int] = []
    for draw, luck in zip(
        rng.normal(STACK_MU, STACK_SIGMA, sum(left)).tolist(), rng.random(sum(left)).tolist(), strict=True
    ):
        deepest = min(int(exp(draw)) + AROUND, len(stack) - 1)
        highest = max(0, deepest - 2 * AROUND)
        around = [left[stack[-1 - place]] for place in range(highest, deepest + 1)]
        chosen = highest + bisect_right(list(accumulate(around)), luck * sum(around))
        file = stack.pop(-1 - min(chosen, deepest))
        left[file] -= 1
        stream.append(file)
        if left[file]:
            stack.append(file)
    return stream


class Caches:
    """What all servers have: their caches, and their disks."""

    def __init__(self, servers: int, sizes: Sequence[int], disks: Sequence[int]) -> None:
        """Begin with empty caches."""
        self.holders = [{disk} for disk in disks]
        self._sizes, self._disks = sizes, disks
        self._cached: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(servers)]
        self._free = [CACHE_BYTES] * servers

    def read(self, server: int, file: int) -> tuple[list[int], list[int]] | None:
        """Return which files come to the server's cache and which go; None if the server has the file."""
        cached, size = self._cached[server], self._sizes[file]
        if server in self.holders[file]:
            if file in cached:
                cached.move_to_end(file)
            return None
        if size > CACHE_BYTES:
            return [], []
        gone: list[int] = []
        while self._free[server] < size:
            old, _ = cached.popitem(last=False)
            self._free[server] += self._sizes[old]
            self.holders[old].discard(server)
            gone.append(old)
        cached[file] = None
        self._free[server] -= size
        self.holders[file].add(server)
        return [file], gone
