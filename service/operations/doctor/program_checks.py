"""Checks of bots and the console: whether they are ready."""

import asyncio
from collections.abc import Sequence

from service.embedded.ports import is_ready
from service.errors import Unreachable
from service.net.internal_clients import ProcessClient
from service.operations.doctor.check_report import CheckResult
from service.operations.doctor.redis_checks import read_store
from service.settings import Settings


async def check_bots(settings: Settings) -> list[CheckResult]:
    """Check the readiness of every bot that has announced itself within the last minute; [] if Redis is unavailable."""
    urls = await read_store(settings, lambda store: store.bot_endpoints.metrics_urls())
    if urls is None:
        return []
    async with ProcessClient() as processes:
        return [judge_bots(await asyncio.gather(*(_unreadiness(processes, url) for url in urls)))]


def judge_bots(reasons: Sequence[str]) -> CheckResult:
    """Return the result of checking all bots.

    ``reasons`` has, for each bot, the reason why it is not ready; "" means that it is ready.
    """
    ready = sum(not reason for reason in reasons)
    details = f"{ready} ready"
    if ready < len(reasons):
        details += f", {len(reasons) - ready} not: {' '.join(dict.fromkeys(filter(None, reasons)))}"
    advice = "See its log." if reasons else "Start `coronet bot` (or `serve`): nobody gets notifications without."
    return CheckResult("Bots", ok=0 < ready == len(reasons), details=details, advice=advice)


async def _unreadiness(processes: ProcessClient, metrics_url: str) -> str:
    try:
        return await processes.unready_reason(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return "one does not respond"


async def check_console(settings: Settings) -> list[CheckResult]:
    """Check ``/readyz`` of a console on this machine."""
    ready = settings.console_port != 0 and await is_ready(settings.console_port)
    details = f"port {settings.console_port} {'is ready' if ready else 'is not ready'}"
    return [
        CheckResult(
            "Console", ok=ready, details=details, advice="Start it (`coronet console` or `serve`), or see its log."
        )
    ]
