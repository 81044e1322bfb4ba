"""The Overview page and its API operation: key figures of the fleet and problems that need attention, updated live.

All viewers of the page receive the same stream of updates, so that each update is rendered only once.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, pairwise
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, METRICS, SETTINGS, STORE, TEMPLATES
from service.console.auth.permissions import read_access
from service.console.page_rendering import render
from service.console.queries import metrics_statistics
from service.console.queries.fleet_problems import list_problems
from service.console.queries.metrics_scraper import Sample
from service.console.queries.metrics_statistics import Delays, compute_growth
from service.model import PollResult
from service.store.channels.channels import POLLS_KEPT

_STREAM_DURATION_S: Final = 600.0
"""Time after which a stream of updates ends. The browser then reconnects, and its request is authorized again."""
_RECONNECT_DELAY_MS: Final = 3_000
_SAMPLED_CHANNELS: Final = 250
_WINDOW_S: Final = 60.0
_MIN_COVERED_S: Final = 1.0
_SERIES: Final = ("at_s", "good", "failed", "messages", "waiting", "seen_p50", "seen_p95", "sent_p50", "sent_p95")

operation = OPERATIONS = Operations()


class Overview(msgspec.Struct, frozen=True):
    """Key figures of the fleet.

    - ``outbox_users`` is the number of people with undelivered messages.
    - ``polls_per_minute`` maps each poll outcome to the number of polls per minute with this outcome.
    - ``budget_polls_per_minute`` is the limit on polls; null means that there is none.
    - ``failing`` is the number of channels whose last poll failed.
    - ``attention`` contains sentences about problems, most urgent first.

    Three fields are delays in the last few minutes. They are null if nothing was detected, delivered or received:

    - ``detection`` is the time from the publication of an entry to its detection.
    - ``delivery`` is the time from the detection of an entry until the XMPP server accepts the message.
    - ``receipt`` is the time from acceptance by the XMPP server until the client's delivery receipt. Only clients that
      send receipts are counted.
    """

    nodes: int
    channels: int
    subscriptions: int
    users: int
    outbox_users: int
    polls_per_minute: dict[str, float]
    budget_polls_per_minute: float | None
    failing: int
    messages_per_minute: float
    detection: Delays | None
    delivery: Delays | None
    receipt: Delays | None
    attention: tuple[str, ...]


@operation("GET", "/overview", read_access("fleet"))
async def get_overview(request: web.Request) -> Overview:
    """Get key figures of the fleet and problems that need attention."""
    return await read_overview(request.app)


async def read_overview(app: web.Application) -> Overview:
    """Return the key figures of the fleet. Raises :class:`StoreUnavailable` if Redis does not respond."""
    store, settings, cache, now_s = app[STORE], app[SETTINGS], app[CHANNEL_CACHE], time.time()
    nodes, waiting, users, aims, _ = await asyncio.gather(
        store.ring.nodes(), store.outbox.count_waiting(), store.users.count(), store.fleet_policy.get(), cache.refresh()
    )
    # Ids are hashes of URLs, so any of them are a random sample.
    sample = await store.channels.polls_of_many(list(islice(cache.rows, _SAMPLED_CHANNELS)), POLLS_KEPT)
    counts, elapsed_s = app[METRICS].recent_growth(now_s)
    fleet = Overview(
        nodes=len(nodes),
        channels=len(cache.rows),
        subscriptions=cache.subscriptions,
        users=users,
        outbox_users=waiting,
        polls_per_minute=estimate_polls_per_minute(sample, POLLS_KEPT, len(cache.rows), now_s),
        budget_polls_per_minute=(aims or settings.policy().objective).budget_polls_per_minute,
        failing=sum(row.failing_since_s > 0 for row in cache.rows.values()),
        messages_per_minute=counts.get(metrics_statistics.MESSAGES, 0.0) / elapsed_s * 60 if elapsed_s else 0.0,
        detection=metrics_statistics.compute_delays(counts, metrics_statistics.DETECTION),
        delivery=metrics_statistics.compute_delays(counts, metrics_statistics.DELIVERY),
        receipt=metrics_statistics.compute_delays(counts, metrics_statistics.RECEIPT),
        attention=(),
    )
    titles = [each.title or each.url for each in await store.channels.get_many(cache.overdue[:1]) if each]
    problems = list_problems(
        nodes=fleet.nodes,
        outbox_users=fleet.outbox_users,
        polls_per_minute=fleet.polls_per_minute,
        overdue=len(cache.overdue),
        example=next(iter(titles), "(removed)"),
    )
    return msgspec.structs.replace(fleet, attention=problems)


async def page(request: web.Request) -> web.Response:
    """Show the key figures of the fleet and problems that need attention."""
    return render(request, "overview.html", fleet=await read_overview(request.app))


async def stream_updates(request: web.Request) -> web.StreamResponse:
    """Stream updates to the Overview page, as server-sent events.

    The stream begins with all points of the charts. After each sample of the metrics, it continues with the updated key
    figures and the latest point of the charts.
    """
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    sampler = request.app[METRICS]
    await response.write(
        f"retry: {_RECONNECT_DELAY_MS}\n".encode() + _points(sampler.samples, await read_overview(request.app))
    )
    with suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(_STREAM_DURATION_S):
            async for update in sampler.watch():
                await response.write(update)
    return response


async def render_update(app: web.Application) -> bytes:
    """Return the server-sent events with the current overview and the latest point of the charts."""
    fleet = await read_overview(app)
    text = app[TEMPLATES].get_template("overview_live.html").render(fleet=fleet)
    return _event("live", text) + _points(app[METRICS].samples[-2:], fleet)


def _points(samples: Sequence[Sample], fleet: Overview) -> bytes:
    return _event("points", msgspec.json.encode(make_chart_series(samples, fleet.budget_polls_per_minute)).decode())


def _event(name: str, data: str) -> bytes:
    lines = "\n".join(f"data: {line}" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n\n".encode()


def make_chart_series(samples: Sequence[Sample], budget: float | None) -> dict[str, list[float | None]]:
    """Map the name of each line in the charts to its values, and ``at_s`` to the times of the values (Unix s).

    Each list has one value for each sample except the first, because most values are differences from the previous
    sample. ``budget`` is the current limit on polls per minute; None means that there is none.
    """
    points = [_point(*pair) for pair in pairwise(samples)]
    return {"budget": [budget] * len(points)} | {name: [point[name] for point in points] for name in _SERIES}


def _point(before: Sample, after: Sample) -> dict[str, float | None]:
    elapsed_min = max(after.at_s - before.at_s, 1e-3) / 60
    counts = compute_growth(before.counts, after.counts)
    polls = metrics_statistics.count_polls(counts)
    good = sum(count for outcome, count in polls.items() if outcome in {"new", "unchanged"})
    point: dict[str, float | None] = {
        "at_s": round(after.at_s, 1),
        "good": round(good / elapsed_min, 1),
        "failed": round((sum(polls.values()) - good) / elapsed_min, 1),
        "messages": round(counts.get(metrics_statistics.MESSAGES, 0.0) / elapsed_min, 1),
        "waiting": float(after.waiting),
    }
    for name, histogram in (("seen", metrics_statistics.DETECTION), ("sent", metrics_statistics.DELIVERY)):
        delays = metrics_statistics.compute_delays(counts, histogram)
        point[f"{name}_p50"] = round(delays.p50_s, 2) if delays else None
        point[f"{name}_p95"] = round(delays.p95_s, 2) if delays else None
    return point


def estimate_polls_per_minute(
    sample: Sequence[Sequence[PollResult]], kept: int, channels: int, now_s: float
) -> dict[str, float]:
    """Estimate, for each poll outcome, how many polls per minute all channels had in the last ``_WINDOW_S`` seconds.

    - ``sample`` contains, for each channel in a random sample, its recorded polls, newest first.
    - ``kept`` is the number of polls that are recorded per channel; older polls are forgotten.
    - ``channels`` is the total number of channels.
    - ``now_s`` is the current Unix time.

    If a channel has ``kept`` recorded polls in this period, further polls in the period may have been forgotten. The
    channel's rate is therefore computed over the time since its oldest recorded poll.
    """
    rates: dict[str, float] = {}
    for polls in sample:
        recent = [poll for poll in polls if poll.at_s > now_s - _WINDOW_S]
        covered_s = now_s - recent[-1].at_s if len(recent) == kept else _WINDOW_S
        for poll in recent:
            rate = 60 / max(covered_s, _MIN_COVERED_S) * channels / len(sample)
            rates[poll.outcome] = rates.get(poll.outcome, 0.0) + rate
    return rates
