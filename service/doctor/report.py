"""All checks together, and their results for people."""

import asyncio
from collections.abc import Mapping, Sequence

from rich.table import Table

from service.clock import Clock, SystemClock
from service.doctor.bots import bots_health, judged
from service.doctor.finding import Finding
from service.doctor.machine import check_console, check_file_limit, check_parser
from service.doctor.store import bots_silent_s, check_store
from service.doctor.xmpp import check_xmpp
from service.logs import redacted
from service.settings import Settings


async def examine(settings: Settings) -> list[Finding]:
    """Make every check that concerns the program that the settings are for."""
    clock, program = SystemClock(), settings.program
    store, bots, xmpp, console, parser = await asyncio.gather(
        check_store(settings, clock),
        _bots(settings) if program != "worker" else _nothing(),
        _xmpp(settings, clock) if program in {"", "bot"} else _nothing(),
        _console(settings) if program in {"", "console"} else _nothing(),
        check_parser(),
    )
    return [*store, *bots, *xmpp, *console, parser, check_file_limit()]


async def _bots(settings: Settings) -> list[Finding]:
    bots = await bots_health(settings)
    return [] if bots is None else [judged(bots)]


async def _xmpp(settings: Settings, clock: Clock) -> list[Finding]:
    return await check_xmpp(settings, await bots_silent_s(settings, clock))


async def _console(settings: Settings) -> list[Finding]:
    return [await check_console(settings)]


async def _nothing() -> list[Finding]:
    return []


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings, each on a line, with advice below what is not as it should be."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok ' if finding.ok else 'BAD'}  {finding.about:<18}{finding.seen}")
        if not finding.ok:
            lines.append(f"     {'':<18}→ {finding.advice}")
    return "\n".join(lines)


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return every setting's effective value and where it came from; secrets are hidden."""
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table
