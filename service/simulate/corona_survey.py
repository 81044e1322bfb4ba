"""The distributions of update intervals and popularity of Corona §5, from which several experiments draw channels.

10 % of the channels have a mean update interval between 10 min and 1 h, 40 % between 1 h and 120 h, both log-uniformly
distributed. The other half are updated once a week. Numbers of subscribers have a Zipf distribution with exponent 0.5,
independent of the update interval.
"""

import numpy as np

from service.simulate.numerics import HOUR_S, MINUTE_S, WEEK_S, Floats, Ints

ZIPF_EXPONENT = 0.5
SUBSCRIBERS_PER_CHANNEL = 50
"""Mean number of subscribers per channel: Corona §5 has 5,000,000 subscriptions to 100,000 channels."""


def draw_intervals_s(channels: int, rng: np.random.Generator) -> Floats:
    """Draw the mean time between updates of each channel, with the distribution of Corona §5."""
    fast = np.exp(rng.uniform(np.log(10 * MINUTE_S), np.log(HOUR_S), channels))
    middle = np.exp(rng.uniform(np.log(HOUR_S), np.log(120 * HOUR_S), channels))
    place = rng.random(channels)
    return np.where(place < 0.1, fast, np.where(place < 0.5, middle, WEEK_S))  # noqa: PLR2004 - shares of the paper


def zipf_subscribers(channels: int, rng: np.random.Generator, per_channel: int = SUBSCRIBERS_PER_CHANNEL) -> Ints:
    """Return the number of subscribers of each channel in random order, with a Zipf distribution.

    The number is at least 1, and ``per_channel`` on average.
    """
    share = np.arange(1, channels + 1) ** -ZIPF_EXPONENT
    wanted = share / share.sum() * channels * per_channel
    return rng.permutation(np.maximum(1, np.round(wanted)).astype(np.int64))
