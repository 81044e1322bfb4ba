"""Array types, units of time, and array functions that several experiments share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S


def ranges(first: Ints | int, length: Ints) -> Ints:
    """Return several ranges of consecutive numbers, one after another, as one array.

    Range i has ``length[i]`` numbers. It begins with ``first[i]``, or with ``first`` if that is a single number.
    """
    return np.repeat(first + length - np.cumsum(length), length) + np.arange(length.sum())


def first_index_beyond(low: Ints, high: Ints, is_beyond: Callable[[Ints], Bools]) -> Ints:
    """Return, for each range [low, high), the first index for which ``is_beyond`` holds, or ``high`` if none does.

    ``is_beyond`` maps an array with one index of each range to booleans. In a range it must be false up to some index,
    and true from there on. Its results for empty ranges are ignored.
    """
    # The search is binary.
    low, high = low.copy(), high.copy()
    while (ahead := low < high).any():
        middle = (low + high) // 2
        beyond = is_beyond(np.where(ahead, middle, 0))
        low, high = np.where(ahead & ~beyond, middle + 1, low), np.where(ahead & beyond, middle, high)
    return low


def mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a pseudorandom number of 64 bits for each of ``values``, by the last step of the generator SplitMix64."""
    mixed = values
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
