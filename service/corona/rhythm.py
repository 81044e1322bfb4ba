"""The weekly rhythm of a channel: at which hours of the day and on which days of the week it publishes.

A rhythm is learnt from the publication times of entries. Corona §3.2 takes a channel's update rate as constant. Here
the rate at a time is the mean rate times a factor for the hour of the day and one for the day of the week. Two clocks
follow from these factors (:mod:`service.corona.weekly_clock`):

- The *publishing clock* runs at the rate λ(t) of the rhythm. By this clock the channel has no daily or weekly pattern,
  so that estimates of its update interval are not misled by silent nights.
- The *polling clock* runs at √λ(t). Polls that are even by this clock minimise the mean delay for a number of polls
  (by the Cauchy-Schwarz inequality, which also gives the square root between channels, see ``honeycomb``).

The polls of a channel that follows its rhythm detect updates after τ/(2n)·(mean of √λ)² on average, where λ has the
mean 1. :func:`weight_factors` returns this square, by which the channel's weight is multiplied. Then the optimum weighs
hours and channels alike, and its scale c is constant over the week.

*Estimation.* Each of the 31 factors is a count of entries divided by the time observed; both decay exponentially. Prior
counts keep the rhythms of channels with few entries even or close to a typical day: a publisher is taken to be either
even, or to have one of 24 days with a night, and a weekend on one of seven places or none.

A rhythm is stored in ``RHYTHM_BYTES`` bytes; b"" is the even rhythm of a channel of which nothing is known.
"""

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from service.corona.weekly_clock import (
    DAY_S,
    DAYS,
    HOUR_S,
    HOURS,
    SPEEDS_BYTES,
    STEPS_PER_OCTAVE,
    WEEK_S,
    WeeklyClock,
)

Floats = NDArray[np.float64]

_COUNTS = np.dtype([("since_s", "<f8"), ("counts", "<f4", SPEEDS_BYTES), ("rates", "i1", SPEEDS_BYTES)])
RHYTHM_BYTES = _COUNTS.itemsize
"""Length of a stored rhythm: when the observation began, 31 decayed counts, and the factors that follow from them."""

_EMPTY = bytes(RHYTHM_BYTES)
_REAL_TIME = bytes(SPEEDS_BYTES)

MEMORY_S = 8 * WEEK_S
"""Evidence decays to 1/e in this time."""
LONGEST_AGE_S = 10 * MEMORY_S
"""Age in which evidence has decayed to nothing."""
OVERDISPERSION = 1.5
"""Entries per independent event, because publishers release several entries at a time."""
PRIOR_PER_HOUR = 3.0
PRIOR_PER_DAY = 36.0
EVEN_SHARE = 0.3
"""Prior probability that a publisher has no typical day, and that it has no weekend."""
TYPICAL_DAY = 1.2
"""Logarithm of the rate of a typical day's busiest hour, relative to its mean; that of the quietest is the negative."""
WEEKEND_DAYS, WEEKEND_RATE = 2, 0.5
MOST_OCTAVES = 4.0
"""Bound of the logarithm of a factor."""

MOST_ENTRIES = 1e6
"""Bound of a count, which keeps the arithmetic finite."""

EXPONENTS = np.arange(8, 0, -1) / 16
"""Exponents of λ in a polling clock: 1/2 is the optimum, and lower ones keep the bounds of single hours."""
STEP_TOLERANCE = 2
"""Difference of speeds, in steps of a sixteenth of an octave, up to which a clock is kept."""


def learn(rhythm: bytes, published_s: Sequence[float], since_s: float, now_s: float) -> bytes:
    """Return the rhythm of a channel after it has published entries.

    Args:
        rhythm: The rhythm before.
        published_s: When the new entries were published, in Unix seconds; times after ``now_s`` count as ``now_s``.
        since_s: Until when ``rhythm`` includes all entries; if it is empty, when the observation began.
        now_s: The present time, in Unix seconds.
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
    """Return the clock that runs at the rate at which the channel publishes; None if its rhythm is even."""
    rates = rhythm[-SPEEDS_BYTES:] if len(rhythm) == RHYTHM_BYTES else b""
    return WeeklyClock(rates) if any(rates) else None


def weight_factors(rhythms: Sequence[bytes]) -> Floats:
    """Return the factor of each channel's mean delay due to polls that follow its rhythm, at most 1, shape (M,)."""
    hours, days = _factors(_decode(rhythms)["rates"])
    return np.asarray(np.sqrt(hours).mean(axis=1) ** 2 * np.sqrt(days).mean(axis=1) ** 2)


def polling_speeds(rhythms: Sequence[bytes], present: Sequence[bytes], lowest: Floats, highest: Floats) -> list[bytes]:
    """Return the speeds of each channel's polling clock, b"" for real time.

    A clock runs at λ(t)^x. The exponent x is 1/2, or the next lower multiple of 1/16 at which the bounds are kept.

    Args:
        rhythms: The rhythms of M channels.
        present: The present speeds of each clock, which are kept if they are hardly different and within the bounds.
        lowest: The lower bound of each clock's speed relative to its mean, shape (M,), from the longest wait.
        highest: The upper bound, from the limits of publishers.
    """
    steps = _decode(rhythms)["rates"].astype(np.float64)
    found = np.zeros(steps.shape, dtype=np.int8)
    rows = np.flatnonzero(steps.any(axis=1))
    for exponent in EXPONENTS:
        tried = np.round(steps[rows] * exponent).astype(np.int8)
        is_within = _are_within(tried, lowest[rows], highest[rows])
        found[rows[is_within]] = tried[is_within]
        rows = rows[~is_within]
    known = np.frombuffer(
        b"".join(each if len(each) == SPEEDS_BYTES else _REAL_TIME for each in present), dtype=np.int8
    )
    known = known.reshape(found.shape)
    is_close = np.abs(known.astype(np.int16) - found).max(axis=1, initial=0) <= STEP_TOLERANCE
    kept = is_close & _are_within(known, lowest, highest)
    return [row.tobytes() if row.any() else b"" for row in np.where(kept[:, None], known, found)]


def delay_factors(rhythms: Sequence[bytes], speeds: Sequence[bytes]) -> Floats:
    """Return each channel's mean delay with polls by a clock with these ``speeds``, divided by that with even polls.

    The result, shape (M,), is below 1 where the clock is fast when the channel publishes.
    """
    hours, days = (
        (published / polled).mean(axis=1)
        for published, polled in zip(_factors(_decode(rhythms)["rates"]), _factors(_decode_speeds(speeds)), strict=True)
    )
    return np.asarray(hours * days)


def _are_within(steps: NDArray[np.int8], lowest: Floats, highest: Floats) -> NDArray[np.bool_]:
    """Return for each row of clocks' speeds whether they are between ``lowest`` and ``highest`` in every hour."""
    hours, days = _factors(steps)
    slowest, fastest = hours.min(axis=1) * days.min(axis=1), hours.max(axis=1) * days.max(axis=1)
    return np.asarray((slowest >= lowest) & (fastest <= highest))


def _factors(steps: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Return the factors of the hours, shape (M, 24), and of the days, shape (M, 7), each with the mean 1."""
    rates = np.exp2(steps / STEPS_PER_OCTAVE)
    return _normalised(rates[:, :HOURS]), _normalised(rates[:, HOURS:])


def _decode_speeds(speeds: Sequence[bytes]) -> NDArray[np.int8]:
    """Return the speeds of M clocks, shape (M, 31); zeros, which are real time, for empty or malformed ones."""
    raw = b"".join(each if len(each) == SPEEDS_BYTES else _REAL_TIME for each in speeds)
    return np.frombuffer(raw, dtype=np.int8).reshape(-1, SPEEDS_BYTES)


def _decode(rhythms: Sequence[bytes]) -> NDArray[np.void]:
    """Return rhythms as rows of a structured array; empty or malformed ones are even and have no counts."""
    raw = b"".join(rhythm if len(rhythm) == RHYTHM_BYTES else _EMPTY for rhythm in rhythms)
    found = np.frombuffer(raw, dtype=_COUNTS).copy()
    found["since_s"] = np.nan_to_num(found["since_s"])
    found["counts"] = np.nan_to_num(np.clip(found["counts"], 0, MOST_ENTRIES))
    return found


def count_entries(row: NDArray[np.int64], published_s: Floats, now_s: float, rows: int) -> Floats:
    """Return an array of shape (``rows``, 31) with the number of entries in each hour of the day and day of the week.

    ``row`` has the row in which each entry counts, and ``published_s`` its publication time. An entry counts as 1 if it
    was published at ``now_s``, and less the older it is.
    """
    counts = np.zeros((rows, SPEEDS_BYTES))
    weight = np.exp((published_s - now_s) / MEMORY_S)
    np.add.at(counts, (row, (published_s // HOUR_S).astype(np.int64) % HOURS), weight)
    np.add.at(counts, (row, HOURS + (published_s // DAY_S).astype(np.int64) % DAYS), weight)
    return counts


def estimate_rates(counts: Floats, since_s: Floats, now_s: float) -> NDArray[np.int8]:
    """Return the factors of rhythms, shape (M, 31), in the form of a clock's speeds.

    Args:
        counts: Decayed numbers of entries in each hour of the day and day of the week, shape (M, 31).
        since_s: When the observation of each channel began, shape (M,), in Unix seconds.
        now_s: Until when they were observed.
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
    """Return for how long each slot of a period was observed in the last ``age_s`` seconds, shape (M, ``slots``).

    Time counts with the weight e^(-age/MEMORY_S).
    """
    length_s = period_s / slots
    begun_s = np.asarray((now_s % period_s - length_s * np.arange(slots, dtype=np.float64)) % period_s)
    """How long ago each slot began last."""

    def within(age_s: Floats) -> Floats:
        """Return the same for ages of at most one period."""
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
    """Return the mean rates of each slot under a mixture of ``typical`` rates, each row of which has the mean 1.

    The first row, even rates, has the prior probability ``EVEN_SHARE``.
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
