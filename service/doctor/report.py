"""All checks together, and their results for people."""

import asyncio
from collections.abc import Mapping, Sequence

from rich.table import Table

from service.clock import SystemClock
from service.doctor.bots import bots_health, judged
from service.doctor.finding import Finding
from service.doctor.machine import check_console, check_file_limit, check_parser
from service.doctor.store import bots_silent_s, check_store
from service.doctor.xmpp import check_xmpp
from service.logs import redacted
from service.settings import Settings


async def examine(settings: Settings) -> list[Finding]:
    """Make every check."""
    clock = SystemClock()
    store, silent_s, bots, console, parser = await asyncio.gather(
        check_store(settings, clock),
        bots_silent_s(settings, clock),
        bots_health(settings),
        check_console(settings),
        check_parser(),
    )
    told = [] if bots is None else [judged(bots)]
    return [*store, *told, *await check_xmpp(settings, silent_s), console, parser, check_file_limit()]


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
        table.add_row(name, redacted(str(value), ()), origins[name])
    return table
