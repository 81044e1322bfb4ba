"""All checks of ``coronet doctor``, for one program or for all.

Every check returns a :class:`CheckResult` and raises no exception if a server is unreachable. No check disturbs running
programs or takes longer than a few seconds.
"""

import asyncio
import platform
from importlib.metadata import version
from itertools import chain

from service.operations.doctor.check_report import CheckResult
from service.operations.doctor.machine_checks import check_file_limit, check_parser
from service.operations.doctor.polling_checks import check_polling
from service.operations.doctor.program_checks import check_bots, check_console
from service.operations.doctor.redis_checks import check_store
from service.operations.doctor.xmpp_login_check import check_xmpp_logins
from service.settings import Settings


async def examine(settings: Settings) -> list[CheckResult]:
    """Run the checks for the program in ``settings.program``, or all checks if that is empty."""
    program = settings.program
    checks = [check_store(settings), check_polling(settings)]
    if program != "worker":
        checks.append(check_bots(settings))
    if program in {"", "bot"}:
        checks.append(check_xmpp_logins(settings))
    if program in {"", "console"}:
        checks.append(check_console(settings))
    groups = await asyncio.gather(*checks, check_parser())
    versions = CheckResult("Version", ok=True, details=f"{version('coronet')}, Python {platform.python_version()}")
    return [versions, *chain.from_iterable(groups), check_file_limit()]
