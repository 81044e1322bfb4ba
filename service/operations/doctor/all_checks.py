"""Runs the checks of ``coronet doctor``. This module also contains the checks of this machine and the console.

Every check returns one or more :class:`CheckResult` objects, and does not raise an exception if a server is
unreachable. No check disturbs running programs or takes longer than a few seconds.
"""

import asyncio
import platform
import resource
from importlib.metadata import version
from itertools import chain

from service.embedded.ports import is_ready
from service.errors import CoronetError
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import Confinement, Document
from service.operations.doctor.bot_check import check_bots
from service.operations.doctor.polling_checks import check_polling
from service.operations.doctor.public_url_check import check_public_url
from service.operations.doctor.redis_checks import check_store
from service.operations.doctor.report import CheckResult
from service.operations.doctor.xmpp_login_check import check_xmpp_logins
from service.settings import Settings

MIN_OPEN_FILES = 1024
_SAMPLE_FEED = b"<rss version='2.0'><channel><title>T</title><item><title>a</title></item></channel></rss>"
_PARSER_ADVICE = "Workers cannot parse documents. Raise the limits of memory and processes (`ulimit -v`, `ulimit -u`)."
_CONFINEMENTS: dict[Confinement | None, str] = {
    "seccomp": "confined by a seccomp filter: no files, no network",
    "rlimits": "confined by resource limits only: no files, no network; this kernel supports no seccomp filter",
}


def check_file_limit() -> CheckResult:
    """Check the limit on this process's open files, which also limits the number of its connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    advice = f"Raise the limit to {MIN_OPEN_FILES} or more: `ulimit -n 4096`, or LimitNOFILE= in a systemd unit."
    return CheckResult("Open files", ok=enough, details=f"at most {soft}", advice=advice)


async def check_parser() -> list[CheckResult]:
    """Check that a parser process starts and parses a document, and report how it is confined."""
    try:
        async with ParserClient() as parser:
            await parser.parse_document(Document(_SAMPLE_FEED, "https://example.org/", {}))
            return [CheckResult("Parser", ok=True, details=_CONFINEMENTS[parser.confinement])]
    except CoronetError as error:
        return [CheckResult("Parser", ok=False, details=str(error), advice=_PARSER_ADVICE)]


async def check_console(settings: Settings) -> list[CheckResult]:
    """Check that a console on this machine is ready (``/readyz``). The check fails if no console is running."""
    ready = settings.console_port != 0 and await is_ready(settings.console_port)
    details = f"port {settings.console_port} {'is ready' if ready else 'is not ready'}"
    return [
        CheckResult(
            "Console", ok=ready, details=details, advice="Start it (`coronet console` or `serve`), or see its log."
        )
    ]


async def examine(settings: Settings) -> list[CheckResult]:
    """Run the checks for the program ``settings.program``, or all checks if it is empty."""
    program = settings.program
    checks = [check_store(settings), check_polling(settings)]
    if program != "worker":
        checks.append(check_bots(settings))
    if program in {"", "bot"}:
        checks.append(check_xmpp_logins(settings))
    if program in {"", "console"}:
        checks += [check_console(settings), check_public_url(settings)]
    groups = await asyncio.gather(*checks, check_parser())
    versions = CheckResult("Version", ok=True, details=f"{version('coronet')}, Python {platform.python_version()}")
    return [versions, *chain.from_iterable(groups), check_file_limit()]
