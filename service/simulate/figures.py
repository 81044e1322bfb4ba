"""What polling a trace came to: requests, and how long each notification took.

An entry is one notification to each subscriber of its channel; its delay is from publication to the poll that found
it. So popular channels weigh more, and among equally popular ones those that publish more.
"""

import msgspec
import numpy as np

from service.simulate.polling import Polling
from service.simulate.trace import Floats, Ints, Trace


class Figures(msgspec.Struct, frozen=True, rename={"p95_s": "p95"}):
    """Of one scheduler, over the entries published and the polls carried out within the window."""

    requests: int
    mean_notification_delay_s: float
    p95_s: float
    """The delay that 95 % of the notifications kept below."""
    wasted_share: float
    """Of the requests, those that found nothing new."""


def figures(trace: Trace, polling: Polling, window_s: tuple[float, float]) -> Figures:
    """Return the figures of a polling that has been advanced past its window."""
    begin_s, end_s = window_s
    inside = (trace.published_s >= begin_s) & (trace.published_s < end_s)
    delay_s = (polling.found_s - trace.published_s)[inside]
    people = trace.subscribers[trace.channel[inside]]
    return Figures(
        requests=polling.requests,
        mean_notification_delay_s=float(np.average(delay_s, weights=people)),
        p95_s=weighted_quantile(delay_s, people, 0.95),
        wasted_share=polling.wasted / polling.requests,
    )


def weighted_quantile(values: Floats, weights: Ints, share: float) -> float:
    """Return the smallest value that, with all below it, holds this share of the weight."""
    order = np.argsort(values)
    weight = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(weight, share * weight[-1])])
