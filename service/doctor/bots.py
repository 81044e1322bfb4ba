"""The bots: does each say that it can do its work?"""

import asyncio
from collections.abc import Sequence

import msgspec

from service.doctor.finding import Finding
from service.errors import StoreUnavailable, Unreachable
from service.net.processes import Processes
from service.settings import Settings
from service.store import connect


class Health(msgspec.Struct, frozen=True):
    """What a bot says of itself: that it is ``ready``, or else ``why`` not ("" if it does not answer)."""

    ready: bool
    why: str = ""


async def bots_health(settings: Settings) -> list[Health] | None:
    """Ask every bot that said within the last minute that it lives; None if Redis, which knows them, is away."""
    try:
        store = await connect(settings)
    except StoreUnavailable:
        return None
    try:
        urls = await store.bots.metrics_urls()
    except StoreUnavailable:
        return None
    finally:
        await store.close()
    async with Processes() as processes:
        return await asyncio.gather(*(_health(processes, url) for url in urls))


def judged(bots: Sequence[Health]) -> Finding:
    """Judge what bots say of themselves."""
    well = sum(bot.ready for bot in bots)
    whys = dict.fromkeys(bot.why or "one does not answer" for bot in bots if not bot.ready)
    seen = f"{well} ready" + (f", {len(bots) - well} not: {' '.join(whys)}" if whys else "")
    advice = "Look into its log." if bots else "Start at least one: `coronet bot`. Until then nobody is told anything."
    return Finding("Bots", ok=0 < well == len(bots), seen=seen, advice=advice)


async def _health(processes: Processes, metrics_url: str) -> Health:
    try:
        why = await processes.why_not_ready(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return Health(ready=False)
    return Health(ready=not why, why=why)
