"""Array types, units of time, and array functions, shared by several experiments."""

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
    """Concatenate several ranges of consecutive integers into one array.

    Range i contains ``length[i]`` integers. Its first integer is ``first[i]``, or ``first`` if that is a single
    integer.
    """
    return np.repeat(first + length - np.cumsum(length), length) + np.arange(length.sum())


def first_index_beyond(low: Ints, high: Ints, is_beyond: Callable[[Ints], Bools]) -> Ints:
    """Return, for each range [low, high), the first index at which ``is_beyond`` is true, or ``high`` if there is none.

    ``is_beyond`` is called with an array that contains one index of each range, and returns one boolean per range.
    Within a range, it must be false up to some index and true from there on. Its results for empty ranges are ignored.
    """
    # The search is binary.
    low, high = low.copy(), high.copy()
    while (ahead := low < high).any():
        middle = (low + high) // 2
        beyond = is_beyond(np.where(ahead, middle, 0))
        low, high = np.where(ahead & ~beyond, middle + 1, low), np.where(ahead & beyond, middle, high)
    return low


def mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Map each of ``values`` to a pseudorandom 64-bit number, using the final step of the SplitMix64 generator."""
    mixed = values
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
