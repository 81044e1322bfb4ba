"""The overview: the fleet in numbers and what needs attention, as a live page and in the API.

Watchers of the page receive the same stream of changes, which is rendered once for all.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console import metrics_sampler
from service.console.auth.roles import look
from service.console.formatting import count, duration, outcome_words, percent, went_well
from service.console.metrics_sampler import Delays, Sample, growth
from service.console.openapi import Operations
from service.console.rendering import CLOCK, PULSE, ROSTER, SETTINGS, STORE, TEMPLATES, render
from service.model import ChannelId, PollResult
from service.settings import Settings
from service.store import Store
from service.store.channels.channels import POLLS_KEPT

_STREAM_LASTS_S: Final = 600.0
"""Then a browser reconnects by itself, and is authorised again."""
_EVERY_MS: Final = 3_000
_SAMPLED: Final = 250
_FAILING_SHARE: Final = 0.2
_WAITING_USERS: Final = 100
_WINDOW_S: Final = 60.0
_SHORTEST_SPAN_S: Final = 1.0
_SERIES: Final = ("at_s", "good", "failed", "messages", "waiting", "seen_p50", "seen_p95", "sent_p50", "sent_p95")

operation = OPERATIONS = Operations()


class Overview(msgspec.Struct, frozen=True):
    """The fleet in numbers. ``polls_per_minute`` is by outcome; ``budget_polls_per_minute`` is null if there is none.

    Of the last minutes: ``detection`` is from an entry's publication to its detection, ``delivery`` from there to
    the XMPP server, ``receipt`` from there to the client, where that says so; null if there was none.
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


@operation("GET", "/overview", look("fleet"))
async def get_overview(request: web.Request) -> Overview:
    """The fleet in numbers, and what needs attention."""
    return await overview(request.app)


async def overview(app: web.Application) -> Overview:
    """Return the fleet in numbers. Raises StoreUnavailable."""
    store, settings, roster, now_s = app[STORE], app[SETTINGS], app[ROSTER], app[CLOCK].wall_s()
    nodes, waiting, users, aims, _ = await asyncio.gather(
        store.ring.nodes(), store.outbox.count_waiting(), store.users.count(), store.fleet_policy.get(), roster.look()
    )
    ids = sorted(roster.rows)
    # Ids are hashes of URLs, so that the first ones are as good a sample as any.
    sample = await store.channels.polls_of_many(ids[:_SAMPLED], POLLS_KEPT)
    rates = polls_per_minute(sample, POLLS_KEPT, len(ids), now_s)
    grown, spent_s = app[PULSE].recent_growth(now_s)
    fleet = Overview(
        nodes=len(nodes),
        channels=len(ids),
        subscriptions=roster.subscriptions,
        users=users,
        outbox_users=waiting,
        polls_per_minute=rates,
        budget_polls_per_minute=(aims or settings.policy().objective).budget_polls_per_minute,
        failing=sum(row.failing_since_s > 0 for row in roster.rows.values()),
        messages_per_minute=metrics_sampler.messages(grown) / spent_s * 60 if spent_s else 0.0,
        detection=metrics_sampler.delays(grown, metrics_sampler.DETECTION),
        delivery=metrics_sampler.delays(grown, metrics_sampler.DELIVERY),
        receipt=metrics_sampler.delays(grown, metrics_sampler.RECEIPT),
        attention=(),
    )
    late = roster.unpolled
    example = await _name(store, late[0]) if late else ""
    sentences = needs_attention(fleet, silence_s(sample, now_s), usual_interval_s(settings), (len(late), example))
    return msgspec.structs.replace(fleet, attention=sentences)


async def page(request: web.Request) -> web.Response:
    """Show the fleet in numbers and what needs attention."""
    return render(request, "overview.html", fleet=await overview(request.app))


async def stream(request: web.Request) -> web.StreamResponse:
    """Send the charts' points, and then the live part of the overview each time that it was looked at."""
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    metrics_sampler = request.app[PULSE]
    await response.write(
        f"retry: {_EVERY_MS}\n".encode() + _points(metrics_sampler.samples, await overview(request.app))
    )
    try:
        async with asyncio.timeout(_STREAM_LASTS_S):
            async for shown in metrics_sampler.watch():
                await response.write(shown)
    except (TimeoutError, ConnectionResetError):
        pass
    return response


async def shown(app: web.Application) -> bytes:
    """Return what those who watch are sent now."""
    fleet = await overview(app)
    text = app[TEMPLATES].get_template("overview_live.html").render(fleet=fleet)
    return _event("live", text) + _points(app[PULSE].samples[-2:], fleet)


def _points(samples: Sequence[Sample], fleet: Overview) -> bytes:
    return _event("points", msgspec.json.encode(series(samples, fleet.budget_polls_per_minute)).decode())


def _event(name: str, data: str) -> bytes:
    lines = "\n".join(f"data: {line}" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n\n".encode()


def usual_interval_s(settings: Settings) -> float:
    """Return the longest time between two polls of one channel when all goes well."""
    return max(settings.poll_interval_s, 3600 / settings.max_polls_per_hour)


async def _name(store: Store, cid: ChannelId) -> str:
    channel = await store.channels.get(cid)
    return channel.title or channel.url if channel else cid


def series(samples: Sequence[Sample], budget: float | None) -> dict[str, list[float | None]]:
    """Return what charts show of samples, a value for each but the first. Times are Unix seconds.

    ``budget`` is what the fleet may poll per minute now.
    """
    points = [_point(*pair) for pair in pairwise(samples)]
    return {"budget": [budget] * len(points)} | {name: [point[name] for point in points] for name in _SERIES}


def _point(before: Sample, after: Sample) -> dict[str, float | None]:
    spent_min = max(after.at_s - before.at_s, 1e-3) / 60
    grown = growth(before.counts, after.counts)
    polls = metrics_sampler.polls(grown)
    good = sum(count for outcome, count in polls.items() if outcome in {"new", "unchanged"})
    point: dict[str, float | None] = {
        "at_s": round(after.at_s, 1),
        "good": round(good / spent_min, 1),
        "failed": round((sum(polls.values()) - good) / spent_min, 1),
        "messages": round(metrics_sampler.messages(grown) / spent_min, 1),
        "waiting": float(after.waiting),
    }
    for name, histogram in (("seen", metrics_sampler.DETECTION), ("sent", metrics_sampler.DELIVERY)):
        delays = metrics_sampler.delays(grown, histogram)
        point[f"{name}_p50"] = round(delays.p50_s, 2) if delays else None
        point[f"{name}_p95"] = round(delays.p95_s, 2) if delays else None
    return point


def polls_per_minute(
    sample: Sequence[Sequence[PollResult]], kept: int, channels: int, now_s: float
) -> dict[str, float]:
    """Return polls per minute by outcome over the last ``_WINDOW_S``, of all channels.

    ``sample`` holds, for a fair sample of the ``channels``, their polls newest first, of which no more
    than ``kept`` are kept: a channel polled more often than that counts over the time they cover.
    """
    rates: dict[str, float] = {}
    for polls in sample:
        recent = [poll for poll in polls if poll.at_s > now_s - _WINDOW_S]
        covered_s = now_s - recent[-1].at_s if len(recent) == kept else _WINDOW_S
        for poll in recent:
            rate = 60 / max(covered_s, _SHORTEST_SPAN_S) * channels / len(sample)
            rates[poll.outcome] = rates.get(poll.outcome, 0.0) + rate
    return rates


def silence_s(sample: Sequence[Sequence[PollResult]], now_s: float) -> float:
    """Return how long ago the newest poll was; 0 when there never was one."""
    return now_s - max((poll.at_s for polls in sample for poll in polls), default=now_s)


def needs_attention(
    fleet: Overview, silence_s: float, poll_interval_s: float, unpolled: tuple[int, str]
) -> tuple[str, ...]:
    """Return the sentences, most urgent first; empty when all is well.

    ``silence_s`` is how long ago the newest poll was, ``poll_interval_s`` the longest time between two polls of one
    channel when all goes well. ``unpolled`` are how many channels were not polled for three times their interval, and
    the name of one of them.
    """
    late, example = unpolled
    said = []
    if not fleet.nodes:
        said.append("No worker runs, so nothing is polled: start one with “coronet worker”.")
    elif fleet.nodes == 1:
        said.append("Only one worker runs, and nobody takes over if it stops: start a second one.")
    if fleet.outbox_users >= _WAITING_USERS:
        waiting = count(fleet.outbox_users, "person waits", "people wait")
        said.append(f"{waiting} for messages: check that the bot runs and that its XMPP server answers.")
    polls = sum(fleet.polls_per_minute.values())
    failed = {outcome: rate for outcome, rate in fleet.polls_per_minute.items() if not went_well(outcome)}
    if polls and sum(failed.values()) >= _FAILING_SHARE * polls:
        worst = outcome_words(max(failed, key=failed.__getitem__))
        share = sum(failed.values()) / polls
        said.append(f"{percent(share)} of the polls fail, mostly with “{worst}”: look for failing channels.")
    if fleet.nodes and fleet.subscriptions and silence_s > 2 * poll_interval_s:
        said.append(f"Nothing was polled for {duration(silence_s)}: see whether the logs of the workers say why.")
    elif fleet.nodes and late:
        channels = count(late, "channel was", "channels were")
        said.append(
            f"{channels} not polled for three times their interval, for example “{example}”: open it, see which"
            " worker owns it, and start that one again."
        )
    return tuple(said)
