"""The fleet at a glance, now and over the last hour."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from service.console import figures
from service.console.attention import Overview, needs_attention
from service.console.figures import Sample, growth
from service.console.poll_rate import polls_per_minute, silence_s
from service.console.pulse import FINE_S
from service.console.roster import Roster
from service.model import ChannelId
from service.settings import Settings
from service.store import Store
from service.store.channels import POLLS_KEPT

_SAMPLED = 250


async def overview(
    store: Store, settings: Settings, roster: Roster, samples: Sequence[Sample], now_s: float
) -> Overview:
    """Return the fleet in numbers. ``samples`` are of the last minutes, oldest first. Raises StoreUnavailable."""
    nodes, waiting, users, aims, _ = await asyncio.gather(
        store.ring.view(), store.outbox.depth(), store.users.count(), store.policy.get(), roster.look()
    )
    ids = sorted(roster.rows)
    # Ids are hashes of URLs, so that the first ones are as good a sample as any.
    sample = await store.channels.polls_of(ids[:_SAMPLED], POLLS_KEPT)
    rates = polls_per_minute(sample, POLLS_KEPT, len(ids), now_s)
    recent = [each for each in samples if each.at_s > now_s - FINE_S]
    grown = growth(recent[0].counts, recent[-1].counts) if recent else {}
    spent_s = recent[-1].at_s - recent[0].at_s if recent else 0.0
    return Overview(
        nodes=len(nodes),
        channels=len(ids),
        subscriptions=roster.subscriptions,
        users=users,
        outbox_users=waiting,
        polls_per_minute=rates,
        budget_polls_per_minute=(aims or settings.policy().aims).budget_polls_per_minute,
        failing=sum(row.failing_since_s > 0 for row in roster.rows.values()),
        messages_per_minute=figures.messages(grown) / spent_s * 60 if spent_s else 0.0,
        detection=figures.delays(grown, figures.DETECTION),
        delivery=figures.delays(grown, figures.DELIVERY),
        receipt=figures.delays(grown, figures.RECEIPT),
        attention=needs_attention(
            nodes=len(nodes),
            subscriptions=roster.subscriptions,
            outbox_users=waiting,
            polls_per_minute=rates,
            silence_s=silence_s(sample, now_s),
            poll_interval_s=usual_interval_s(settings),
            unpolled=len(roster.unpolled),
            unpolled_example=await _name(store, roster.unpolled[0]) if roster.unpolled else "",
        ),
    )


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
    names = ("at_s", "good", "failed", "budget", "messages", "waiting", "seen_p50", "seen_p95", "sent_p50", "sent_p95")
    told: dict[str, list[float | None]] = {name: [] for name in names}
    for before, after in pairwise(samples):
        spent_min = max(after.at_s - before.at_s, 1e-3) / 60
        grown = growth(before.counts, after.counts)
        polls = figures.polls(grown)
        good = sum(count for outcome, count in polls.items() if outcome in {"new", "unchanged"})
        seen, sent = (figures.delays(grown, name) for name in (figures.DETECTION, figures.DELIVERY))
        values: dict[str, float | None] = {
            "at_s": round(after.at_s, 1),
            "good": round(good / spent_min, 1),
            "failed": round((sum(polls.values()) - good) / spent_min, 1),
            "budget": budget,
            "messages": round(figures.messages(grown) / spent_min, 1),
            "waiting": float(after.waiting),
            "seen_p50": round(seen.p50_s, 2) if seen else None,
            "seen_p95": round(seen.p95_s, 2) if seen else None,
            "sent_p50": round(sent.p50_s, 2) if sent else None,
            "sent_p95": round(sent.p95_s, 2) if sent else None,
        }
        for name, value in values.items():
            told[name].append(value)
    return told
