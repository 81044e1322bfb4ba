"""The check that bots are running and ready."""

import asyncio
from collections.abc import Sequence

from service.errors import Unreachable
from service.net.internal_clients import ProcessClient
from service.operations.doctor.redis_checks import read_store
from service.operations.doctor.report import CheckResult
from service.settings import Settings


async def check_bots(settings: Settings) -> list[CheckResult]:
    """Check that all running bots are ready.

    A bot counts as running if it has announced itself in the last minute and has not stopped since. The result is
    [] if Redis is unavailable.
    """
    reasons = await unready_reasons(settings)
    return [] if reasons is None else [judge_bots(reasons)]


async def unready_reasons(settings: Settings) -> list[str] | None:
    """Return, for each bot that has announced itself, the reason why it is not ready, or "" if it is ready.

    The result is None if Redis is unavailable.
    """
    urls = await read_store(settings, lambda store: store.bot_endpoints.metrics_urls())
    if urls is None:
        return None
    async with ProcessClient() as processes:
        return await asyncio.gather(*(_unready_reason(processes, url) for url in urls))


def judge_bots(reasons: Sequence[str]) -> CheckResult:
    """Return the result of checking all bots. The check fails if there are no bots or if any bot is not ready.

    ``reasons`` is the result of :func:`unready_reasons`.
    """
    ready = sum(not reason for reason in reasons)
    details = f"{ready} ready"
    if ready < len(reasons):
        details += f", {len(reasons) - ready} not: {' '.join(dict.fromkeys(filter(None, reasons)))}"
    advice = "See its log." if reasons else "Start `coronet bot` (or `serve`): nobody gets notifications without."
    return CheckResult("Bots", ok=0 < ready == len(reasons), details=details, advice=advice)


async def _unready_reason(processes: ProcessClient, metrics_url: str) -> str:
    try:
        return await processes.unready_reason(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return "one does not respond"
