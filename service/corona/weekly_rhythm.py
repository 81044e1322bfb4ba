"""The weekly rhythm of a channel: how often it publishes at each hour of the day and on each day of the week.

The rhythm is learnt from the publication times of entries. Corona §3.2 assumes that a channel's update rate is
constant. Here the rate λ(t) is the mean rate times two factors: one for the hour of the day, and one for the day of the
week. Two clocks are derived from these factors:

- The *publishing clock* runs at the rate λ(t). Measured by this clock, the channel has no daily or weekly pattern, so
  nights without updates do not distort estimates of its update interval.
- The *polling clock* runs at √λ(t). Polls that are evenly spaced by this clock minimise the mean delay for a given
  number of polls. This follows from the Cauchy-Schwarz inequality, as does the square root in the formula that divides
  polls among channels (``allocation_solver``).

A clock's speed is the product of its two factors, within a lower and an upper bound. Over a whole week, a clock neither
gains nor loses time: it shows the real time at the beginning of each week. A week begins on a Thursday (a Unix day
number divisible by 7).

Effect: n polls per poll interval τ, evenly spaced by the polling clock, detect updates after τ/(2n)·(mean of √λ)² on
average, where λ is scaled to mean 1. Polls evenly spaced in real time would detect them after τ/(2n). The channel's
weight is multiplied by the same factor, (mean of √λ)² (:func:`weight_factors`). Polls are thus divided optimally among
channels as well as hours, and the scale c is constant over the week.

Estimation:

1. A rhythm has 31 factors, for 24 hours and 7 days. Each factor is the number of entries divided by the time observed;
   both decay exponentially.
2. Prior counts keep the rhythms of channels with few entries close to a typical rhythm.
3. A publisher is assumed to publish either evenly over the day, or according to one of 24 typical days, which differ
   only in when the night is.
4. Likewise, a publisher is assumed to have either no weekend, or a weekend on one of the seven pairs of successive
   days.

A rhythm is stored in ``RHYTHM_BYTES`` bytes. If nothing is known about a channel, its rhythm is b"", which stands for a
constant rate.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp

import numpy as np
from numpy.typing import NDArray

HOURS, DAYS = 24, 7
HOURS_OF_WEEK = HOURS * DAYS
FACTORS = HOURS + DAYS
"""Number of a clock's factors: one per hour of the day, then one per day of the week."""
SPEEDS_BYTES = FACTORS + 2
"""Length in bytes of the speeds of a clock: the 31 factors, then the lower and the upper bound of their products.

Each byte is a signed number n, which stands for the factor 2^(n/16).
"""
STEPS_PER_OCTAVE = 16

_CACHED_CLOCKS = 4096
"""Number of cached clocks, of 1.5 kB each; the construction of a clock takes 20 µs."""

HOUR_S = 3600.0
DAY_S = HOURS * HOUR_S
WEEK_S = DAYS * DAY_S

Floats = NDArray[np.float64]
Steps = NDArray[np.int8]
"""Factors of M rhythms, shape (M, 31), or speeds of M clocks, shape (M, 33).

The 31 factors are those of the 24 hours of the day and the 7 days of the week. The speeds of a clock also have the
lower and the upper bound of the factors' products. A number n stands for the factor 2^(n/16).
"""

_COUNTS = np.dtype([("since_s", "<f8"), ("counts", "<f4", FACTORS), ("rates", "i1", FACTORS)])
RHYTHM_BYTES = _COUNTS.itemsize
"""Length of a stored rhythm: when the observation began, 31 decayed counts, and the factors that follow from them."""

_EMPTY = bytes(RHYTHM_BYTES)
_REAL_TIME = bytes(SPEEDS_BYTES)

MEMORY_S = 8 * WEEK_S
"""Time in seconds in which the weight of a counted entry, and of observed time, decays to 1/e."""
LONGEST_AGE_S = 10 * MEMORY_S
"""Age in seconds at which the weight of an entry, or of observed time, has decayed to almost nothing (e⁻¹⁰)."""
OVERDISPERSION = 1.5
"""Assumed mean number of entries that a publisher releases together; this many count as one independent event."""
PRIOR_PER_HOUR = 3.0
PRIOR_PER_DAY = 36.0
EVEN_SHARE = 0.3
"""Prior probability that a publisher publishes evenly over the day; also the prior probability that it has no weekend.
"""
TYPICAL_DAY = 1.2
"""Amplitude of a typical day: how much the natural logarithm of the rate rises and falls.

Over the day, this logarithm follows a cosine from -1.2 to 1.2, apart from a constant.
"""
WEEKEND_DAYS, WEEKEND_RATE = 2, 0.5
MOST_OCTAVES = 4.0
"""Maximum absolute value of log₂ of a factor."""

MOST_ENTRIES = 1e6
"""Maximum number of entries that is counted for an hour or a day, which keeps the arithmetic finite."""

STEP_TOLERANCE = 2
"""Difference up to which two encoded factors count as similar; a value n stands for the factor 2^(n/16)."""
_LEAST_STEP, _MOST_STEP = -127, 127
_ROUNDING = 1e-9
_EXP2 = np.exp2(np.r_[0:128, -128:0] / STEPS_PER_OCTAVE)
"""The factor that each signed byte stands for, as an array; a negative byte is an index from the end of this array."""


def hourly_speeds(steps: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the speed of each of M clocks in each hour of the week, relative to its mean speed; shape (M, 168).

    ``steps`` has shape (M, 31) or (M, 33). Its columns are the factors of the 24 hours of the day and of the 7 days of
    the week. With 33 columns, the last two are the lower and the upper bound of the speed. A value n stands for the
    factor 2^(n/16).
    """
    factors = _EXP2[steps]
    found = _products(factors)
    if steps.shape[1] == SPEEDS_BYTES:
        found = np.minimum(np.maximum(found, factors[:, FACTORS : FACTORS + 1]), factors[:, FACTORS + 1 :])
    return np.asarray(found / found.mean(axis=1, keepdims=True))


class WeeklyClock:
    """A clock whose speed depends on the hour of the week.

    ``speeds`` contains signed bytes: 24 factors for the hours of the day, 7 factors for the days of the week and,
    optionally, the lower and the upper bound of the products of these factors. A byte n stands for the factor 2^(n/16).
    The clock never stops or runs backwards. Clock time and real time are in seconds since the Unix epoch.
    """

    __slots__ = ("_begins_s",)

    def __init__(self, speeds: bytes) -> None:
        (hourly,) = hourly_speeds(np.frombuffer(speeds, dtype=np.int8)[None])
        self._begins_s: array[float] = array("d", [0.0, *(hourly.cumsum() * HOUR_S).tolist()])
        """The clock time since the beginning of the week at which each hour begins and at which the last hour ends."""
        self._begins_s[-1] = WEEK_S

    def shown_s(self, at_s: float) -> float:
        """Return the time that the clock shows at the real time ``at_s``."""
        week, inside_s = divmod(at_s, WEEK_S)
        hour = min(int(inside_s / HOUR_S), HOURS_OF_WEEK - 1)
        begin_s, end_s = self._begins_s[hour], self._begins_s[hour + 1]
        return week * WEEK_S + begin_s + (inside_s / HOUR_S - hour) * (end_s - begin_s)

    def time_s(self, shown_s: float) -> float:
        """Return the real time at which the clock shows ``shown_s``; the inverse of :meth:`shown_s`."""
        week, inside_s = divmod(shown_s, WEEK_S)
        hour = min(bisect_right(self._begins_s, inside_s) - 1, HOURS_OF_WEEK - 1)
        begin_s, end_s = self._begins_s[hour], self._begins_s[hour + 1]
        return week * WEEK_S + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S

    def speed(self, at_s: float) -> float:
        """Return the clock's speed at the real time ``at_s``, relative to its mean speed."""
        hour = min(int(at_s % WEEK_S / HOUR_S), HOURS_OF_WEEK - 1)
        return (self._begins_s[hour + 1] - self._begins_s[hour]) / HOUR_S


@lru_cache(_CACHED_CLOCKS)
def weekly_clock(speeds: bytes) -> WeeklyClock:
    """Return the :class:`WeeklyClock` that is encoded by ``speeds``; results are cached."""
    return WeeklyClock(speeds)


def learn_rhythm(rhythm: bytes, published_s: Sequence[float], since_s: float, now_s: float) -> bytes:
    """Return the encoded weekly rhythm of a channel, updated with the entries that it has just published.

    The rhythm states how often the channel publishes at each hour of the week.

    Args:
        rhythm: The previous rhythm, encoded; b"" for a channel without one.
        published_s: When the new entries were published, as Unix times. Times after ``now_s`` count as ``now_s``.
        since_s: The Unix time at which ``rhythm`` was last updated. If the channel has no rhythm yet, the Unix time at
            which its observation began.
        now_s: The present Unix time.
    """
    known = _decode([rhythm])
    if not rhythm:
        known["since_s"] = since_s
    times_s = np.clip(np.asarray(published_s, dtype=np.float64), now_s - LONGEST_AGE_S, now_s)
    counts = known["counts"].astype(np.float64) * exp(-max(0.0, now_s - since_s) / MEMORY_S)
    counts += count_entries(np.zeros(len(times_s), dtype=np.int64), times_s, now_s, 1)
    known["counts"] = counts
    known["rates"] = estimate_rates(counts, known["since_s"], now_s)
    return known.tobytes()


def publishing_clock(rhythm: bytes) -> WeeklyClock | None:
    """Return a clock that runs faster in the hours in which the channel publishes more.

    ``rhythm`` is the channel's encoded weekly rhythm. The clock's speed is proportional to the channel's
    publishing rate. The result is None if this rate is constant.
    """
    rates = rhythm[-FACTORS:] if len(rhythm) == RHYTHM_BYTES else b""
    return weekly_clock(rates) if any(rates) else None


def decode_rates(rhythms: Sequence[bytes]) -> Steps:
    """Return how often each of M channels publishes, for each hour of the day and day of the week; shape (M, 31).

    ``rhythms`` are the channels' encoded weekly rhythms. A value n in the result means 2^(n/16) times the mean rate.
    """
    return np.asarray(_decode(rhythms)["rates"])


def weight_factors(rates: Steps) -> Floats:
    """Return the factor by which each channel's mean delay changes if its polls follow its weekly rhythm.

    The factor compares this delay with that of polls that are evenly spaced in real time. It is at most 1. The
    result has shape (M,). ``rates`` states how often each of M channels publishes at each hour of the day and on
    each day of the week (:func:`decode_rates`).
    """
    hours, days = _factors(rates)
    return np.asarray(np.sqrt(hours).mean(axis=1) ** 2 * np.sqrt(days).mean(axis=1) ** 2)


def polling_speeds(rates: Steps, lowest: Floats, highest: Floats) -> Steps:
    """Return the encoded clocks by which the polls of M channels are evenly spaced, one per row; shape (M, 33).

    A clock runs faster in the hours in which the channel is polled more often. Its row contains the factors of the 24
    hours and the 7 days, followed by the lower and the upper bound of their products. If no clock satisfies a channel's
    limits, its row contains only zeros, which stand for real time.

    Args:
        rates: How often each of M channels publishes at each hour and on each day (:func:`decode_rates`).
        lowest: The lower limit of each clock's speed relative to its mean speed, shape (M,). It follows from the
            longest time that the channel's updates may wait.
        highest: The upper limit of each clock's speed relative to its mean speed, shape (M,). It follows from the
            maximum number of polls of the channel.
    """
    # A clock runs at √λ(t), where λ is the rhythm. Where its speed, relative to the mean, is outside the given bounds,
    # it is clipped. If no clipping satisfies the bounds, the row consists of zeros.
    steps = np.hstack((np.round(rates / 2), np.broadcast_to([_LEAST_STEP, _MOST_STEP], (len(rates), 2)))).astype(
        np.int8
    )
    slowest, fastest = _extremes(steps)
    rows = np.flatnonzero(~_fits(slowest, fastest, lowest, highest))
    if len(rows):
        found = _bounded(steps[rows], lowest[rows], highest[rows])
        slowest[rows], fastest[rows] = _extremes(found)
        steps[rows] = found
    is_even = (fastest - slowest < _ROUNDING) | ~_fits(slowest, fastest, lowest, highest)
    steps[is_even] = 0
    return steps


def are_within(speeds: Steps, lowest: Floats, highest: Floats) -> NDArray[np.bool_]:
    """Return, for each of M clocks, whether its speed is between ``lowest`` and ``highest`` in every hour."""
    return _fits(*_extremes(speeds), lowest, highest)


def are_similar(speeds: Steps, others: Steps) -> NDArray[np.bool_]:
    """Return, for each row, whether ``speeds`` and ``others`` differ by at most ``STEP_TOLERANCE`` in every column."""
    difference = np.abs(speeds.astype(np.int16) - others).max(axis=1, initial=0)
    return np.asarray(difference <= STEP_TOLERANCE)


def _fits(slowest: Floats, fastest: Floats, lowest: Floats, highest: Floats) -> NDArray[np.bool_]:
    return np.asarray((slowest >= lowest * (1 - _ROUNDING)) & (fastest <= highest * (1 + _ROUNDING)))


def _extremes(speeds: Steps) -> tuple[Floats, Floats]:
    """Return (lowest, highest): each clock's extreme speeds, relative to its mean speed; both have shape (M,)."""
    hourly = hourly_speeds(speeds)
    return np.asarray(hourly.min(axis=1)), np.asarray(hourly.max(axis=1))


def _bounded(speeds: Steps, lowest: Floats, highest: Floats) -> Steps:
    """Return ``speeds`` with bounds that keep each clock's speed between ``lowest`` and ``highest``.

    Both are relative to the clock's mean speed. The function does not check whether both can be respected.
    """
    # The bounds that clip the speed affect this mean: a lower upper bound makes the clock slower on average, a higher
    # lower bound makes it faster. First choose the highest upper bound at which no hour is faster than ``highest``,
    # then the lowest lower bound at which no hour is slower than ``lowest``.
    found = speeds.copy()
    products = _products(_EXP2[speeds])
    slowest, fastest = products.min(axis=1), products.max(axis=1)
    least = np.full(len(speeds), _EXP2[_LEAST_STEP])

    def is_slow_enough(step: NDArray[np.int64]) -> NDArray[np.bool_]:
        most = _EXP2[step]
        at_most = highest * (1 + _ROUNDING) * _bounded_mean(products, least, most)
        return np.asarray(np.minimum(fastest, most) <= at_most)

    found[:, -1] = _last_within(len(speeds), is_slow_enough)
    most = _EXP2[found[:, -1]]

    def is_fast_enough(step: NDArray[np.int64]) -> NDArray[np.bool_]:
        least = _EXP2[-step]
        bounded = np.minimum(np.maximum(slowest, least), most)
        return np.asarray(bounded >= lowest * (1 - _ROUNDING) * _bounded_mean(products, least, most))

    found[:, -2] = -_last_within(len(speeds), is_fast_enough)
    return found


def _products(factors: Floats) -> Floats:
    """Return the speed of each of M clocks in each hour of the week, shape (M, 168).

    The speed is the factor of the hour times the factor of the day. ``factors`` has one row per clock: the factors of
    the 24 hours of the day, then those of the 7 days of the week.
    """
    products = factors[:, HOURS:FACTORS, None] * factors[:, None, :HOURS]
    return np.asarray(products.reshape(-1, HOURS_OF_WEEK))


def _bounded_mean(products: Floats, least: Floats, most: Floats) -> Floats:
    """Return the mean of each row of ``products``, with every value limited to the range from ``least`` to ``most``.

    If ``least`` exceeds ``most``, all values count as ``most``.
    """
    return np.asarray(np.minimum(np.maximum(products, least[:, None]), most[:, None]).mean(axis=1))


def _last_within(count: int, fits: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return, for each of ``count`` clocks, the highest integer from -127 to 127 for which ``fits`` is true.

    ``fits`` takes an array with one integer per clock, and returns an array with one boolean per clock. It must be
    monotonic: true up to some integer, and false for all higher ones.
    """
    # The numbers are steps of a clock's speed: n stands for the factor 2^(n/16).
    low, high = np.full(count, _LEAST_STEP), np.full(count, _MOST_STEP)
    while (low < high).any():
        middle = (low + high + 1) // 2
        is_fine = fits(middle)
        low, high = np.where(is_fine, middle, low), np.where(is_fine, high, middle - 1)
    return low


def decode_speeds(speeds: Sequence[bytes]) -> Steps:
    """Return the speeds of M clocks that :func:`encode_speeds` has encoded, shape (M, 33).

    Empty or malformed speeds are decoded as a row of zeros, which stands for real time.
    """
    raw = b"".join(each if len(each) == SPEEDS_BYTES else _REAL_TIME for each in speeds)
    return np.frombuffer(raw, dtype=np.int8).reshape(-1, SPEEDS_BYTES)


def encode_speeds(speeds: Steps) -> list[bytes]:
    """Encode the speeds of each of M clocks; a row of zeros, which stands for real time, is encoded as b""."""
    return [row.tobytes() if row.any() else b"" for row in speeds]


def delay_factors(rhythms: Sequence[bytes], speeds: Sequence[bytes]) -> Floats:
    """Return the factor by which each channel's mean delay changes if its polls follow its clock; shape (M,).

    The factor compares this delay with that of polls that are evenly spaced in real time. If it is below 1, the
    polls by the clock detect updates faster.

    - ``rhythms``: the encoded rhythms, which state how often each channel publishes at each hour of the week.
    - ``speeds``: the encoded speeds of each channel's clock, by which its polls are evenly spaced.
    """
    published, polled = hourly_speeds(decode_rates(rhythms)), hourly_speeds(decode_speeds(speeds))
    return np.asarray((published / polled).mean(axis=1))


def _factors(steps: Steps) -> tuple[Floats, Floats]:
    """Return the factors of the hours of the day, shape (M, 24), and of the days of the week, shape (M, 7).

    A value n in ``steps`` stands for the factor 2^(n/16). Each row of the results is scaled to mean 1.
    """
    rates = np.exp2(steps / STEPS_PER_OCTAVE)
    return _normalised(rates[:, :HOURS]), _normalised(rates[:, HOURS:])


def _decode(rhythms: Sequence[bytes]) -> NDArray[np.void]:
    """Return the channels' weekly rhythms as a structured array with one row per channel.

    An empty or malformed rhythm is decoded as the rhythm of a channel that always publishes at the same rate.
    """
    # It has no counts.
    raw = b"".join(rhythm if len(rhythm) == RHYTHM_BYTES else _EMPTY for rhythm in rhythms)
    found = np.frombuffer(raw, dtype=_COUNTS).copy()
    found["since_s"] = np.nan_to_num(found["since_s"])
    found["counts"] = np.nan_to_num(np.clip(found["counts"], 0, MOST_ENTRIES))
    return found


def count_entries(row: NDArray[np.int64], published_s: Floats, now_s: float, rows: int) -> Floats:
    """Count the entries of each channel at each hour of the day and on each day of the week; shape (``rows``, 31).

    - ``row``: for each entry, the index of its channel.
    - ``published_s``: for each entry, the Unix time at which it was published.
    - ``now_s``: the present Unix time. An entry counts as 1 if it was published now, and less the older it is.
    - ``rows``: the number of channels.
    """
    counts = np.zeros((rows, FACTORS))
    weight = np.exp((published_s - now_s) / MEMORY_S)
    np.add.at(counts, (row, (published_s // HOUR_S).astype(np.int64) % HOURS), weight)
    np.add.at(counts, (row, HOURS + (published_s // DAY_S).astype(np.int64) % DAYS), weight)
    return counts


def estimate_rates(counts: Floats, since_s: Floats, now_s: float) -> Steps:
    """Estimate how often each of M channels publishes, for each hour of the day and day of the week; shape (M, 31).

    A value n in the result means 2^(n/16) times the mean rate.

    Args:
        counts: For each channel, the number of entries in each hour of the day and on each day of the week, shape
            (M, 31). Old entries count less than 1.
        since_s: When the observation of each channel began, shape (M,), as Unix times.
        now_s: The end of the observation, as a Unix time.
    """
    age_s = np.clip(now_s - since_s, 0.0, LONGEST_AGE_S)
    of_day = _observed_s(age_s, now_s, DAY_S, HOURS)
    of_week = _observed_s(age_s, now_s, WEEK_S, DAYS)
    factors = np.hstack((
        _posterior_rates(counts[:, :HOURS], of_day, _TYPICAL_DAYS, PRIOR_PER_HOUR),
        _posterior_rates(counts[:, HOURS:], of_week, _TYPICAL_WEEKS, PRIOR_PER_DAY),
    ))  # fmt: skip
    steps = np.clip(np.log2(factors), -MOST_OCTAVES, MOST_OCTAVES) * STEPS_PER_OCTAVE
    return np.round(steps).astype(np.int8)


def _observed_s(age_s: Floats, now_s: float, period_s: float, slots: int) -> Floats:
    """Return for how many seconds each channel was observed in each part of a period, shape (M, ``slots``).

    - ``age_s``: for how many seconds each channel has been observed up to ``now_s``; shape (M,).
    - ``now_s``: the present Unix time.
    - ``period_s``: the length of the period in seconds: a day or a week.
    - ``slots``: the number of equal parts of the period, such as 24 hours.

    Older observations count less: a second that was t seconds ago counts as e^(-t/MEMORY_S) seconds.
    """
    length_s = period_s / slots
    begun_s = np.asarray((now_s % period_s - length_s * np.arange(slots, dtype=np.float64)) % period_s)
    """How long ago each slot began last."""

    def within(age_s: Floats) -> Floats:
        """Return the observed time in each slot for channels observed for at most one period, shape (M, ``slots``)."""
        last = _weight_s(np.maximum(begun_s - length_s, 0.0), np.minimum(begun_s, age_s))
        before = _weight_s(begun_s - length_s + period_s, np.minimum(period_s, age_s))
        return last + np.where(begun_s < length_s, before, 0.0)

    periods = np.floor(age_s / period_s)[:, None]
    left = np.exp(-periods * period_s / MEMORY_S)
    whole = within(np.full((1, 1), period_s)) / (1 - exp(-period_s / MEMORY_S))
    return np.asarray(whole * (1 - left) + left * within(age_s[:, None] - periods * period_s))


def _weight_s(begin_s: Floats, end_s: Floats) -> Floats:
    return MEMORY_S * (np.exp(-begin_s / MEMORY_S) - np.exp(-np.maximum(begin_s, end_s) / MEMORY_S))


def _posterior_rates(counts: Floats, observed_s: Floats, typical: Floats, prior: float) -> Floats:
    """Estimate how often each of M channels publishes in each slot (hour or day); shape (M, slots).

    The estimate is the mean of the posterior distribution. Each row of the result is scaled to mean 1.

    - ``counts``: the number of entries in each slot.
    - ``observed_s``: the observed time in each slot in seconds.
    - ``typical``: the rates of typical publishers, one publisher per row, each scaled to mean 1. A real publisher is
      assumed to follow one of these rows. The first row is constant and has the prior probability ``EVEN_SHARE``.
    - ``prior``: how much the typical rates count, compared with the entries. They count like this number of observed
      events in each slot, where entries that are released together are one event.
    """
    events = counts / OVERDISPERSION
    total = events.sum(axis=1, keepdims=True)
    share = observed_s / np.maximum(observed_s.sum(axis=1, keepdims=True), 1e-9)
    likelihood = events @ np.log(typical).T - total * np.log(np.maximum(share @ typical.T, 1e-9))
    likelihood[:, 1:] += np.log((1 / EVEN_SHARE - 1) / (len(typical) - 1))
    chance = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    expected = chance @ typical / chance.sum(axis=1, keepdims=True)
    rates = (events + prior * expected) / (total * share + prior)
    return _normalised(rates)


def _normalised(rates: Floats) -> Floats:
    return np.asarray(rates / rates.mean(axis=1, keepdims=True))


def _rotated(rates: Floats) -> Floats:
    return np.stack([np.ones(len(rates)), *(np.roll(rates, shift) for shift in range(len(rates)))])


_TYPICAL_DAYS = _normalised(_rotated(np.exp(TYPICAL_DAY * np.cos(2 * np.pi * np.arange(HOURS) / HOURS))))
_TYPICAL_WEEKS = _normalised(_rotated(np.where(np.arange(DAYS) < WEEKEND_DAYS, WEEKEND_RATE, 1.0)))
