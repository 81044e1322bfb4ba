"""All checks together, and their results for people."""

import asyncio
from collections.abc import Mapping, Sequence

from rich.table import Table

from service.clock import Clock, SystemClock
from service.doctor.checks import (
    Finding,
    bots_silent_s,
    check_bots,
    check_console,
    check_file_limit,
    check_parser,
    check_store,
)
from service.doctor.xmpp import check_xmpp
from service.logs import redacted
from service.settings import Settings


async def examine(settings: Settings) -> list[Finding]:
    """Make every check that concerns the program that the settings are for."""
    clock, program = SystemClock(), settings.program
    checks = [check_store(settings, clock)]
    if program != "worker":
        checks.append(check_bots(settings))
    if program in {"", "bot"}:
        checks.append(_xmpp(settings, clock))
    if program in {"", "console"}:
        checks.append(check_console(settings))
    found = await asyncio.gather(*checks, check_parser())
    return [*(finding for findings in found for finding in findings), check_file_limit()]


async def _xmpp(settings: Settings, clock: Clock) -> list[Finding]:
    return await check_xmpp(settings, await bots_silent_s(settings, clock))


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
