"""Polling levels: the wedges of nodes that poll a channel together (Corona §3.1).

Ids are written in a number system of base b. The *wedge* of a channel at level l consists of the nodes whose ids begin
with the same l digits as the channel's id: all N nodes at level 0, about N/bˡ at level l. These nodes are nearer to the
channel by XOR than all others, so that a wedge of n nodes is the polling set of the n nearest ones. If a wedge is
empty, the channel's owner polls it instead.

Conversely, a channel that is polled n times per τ is at level log_b(N/n), a real number.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from service.model import ChannelId
from service.overlay.id_space import BITS, from_hex
from service.overlay.ring import RingView

Sizes = NDArray[np.float64]

_PREFIX_BITS = 60
"""Leading bits of ids that are compared: a multiple of the bits of a digit of each base."""


def level_of(size: float, nodes: int, base: int) -> float:
    """Return log_b(N/n), the polling level of a channel that ``size`` = n of N ``nodes`` poll, with ``base`` b.

    The result is between 0, if all nodes poll the channel, and log_b N, if one node does.
    """
    return log(nodes / min(max(size, 1.0), nodes), base)


def highest_level(nodes: int, base: int) -> int:
    """Return the lowest level at which a wedge has at most one node on average, on a ring of ``nodes`` nodes."""
    level = 0
    while base**level < nodes:
        level += 1
    return level


def wedge_sizes(view: RingView, channels: Sequence[ChannelId], base: int) -> Sizes:
    """Return the number of nodes in each channel's wedge at the levels 0, 1, …, shape (M, levels).

    Args:
        view: The ring.
        channels: The ids of M channels.
        base: The number of values of a digit: 2, 4 or 16.

    An empty wedge counts as 1, because the channel's owner polls it. All channels have 1 at the last level.
    """
    width = base.bit_length() - 1
    own = np.fromiter((from_hex(channel) >> BITS - _PREFIX_BITS for channel in channels), np.int64, len(channels))
    nodes = np.array([point >> BITS - _PREFIX_BITS for point in view.points], np.int64)
    found = [np.full(len(own), max(1.0, len(nodes)))]
    for bits in range(width, _PREFIX_BITS + 1, width):
        if found[-1].max(initial=1.0) <= 1:
            break
        shift = _PREFIX_BITS - bits
        prefixes = own >> shift
        at_level = nodes >> shift
        counts = np.searchsorted(at_level, prefixes, side="right") - np.searchsorted(at_level, prefixes)
        found.append(np.maximum(counts, 1.0))
    found.append(np.ones(len(own)))
    return np.stack(found, axis=1)
