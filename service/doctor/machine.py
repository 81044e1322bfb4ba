"""This machine: how many files may be open; and the console on it."""

import resource

from service.doctor.finding import Finding
from service.settings import Settings
from service.stack.ports import says_ready

FEWEST_FILES = 1024


def check_file_limit() -> Finding:
    """See whether enough files (that is, connections) may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES
    advice = f"Raise it to {FEWEST_FILES} or more: `ulimit -n 4096`, or LimitNOFILE= in a systemd unit."
    return Finding("Open files", ok=enough, seen=f"at most {soft}", advice=advice)


async def check_console(settings: Settings) -> Finding:
    """Ask the console's ``/readyz``; it is looked for on this machine."""
    ready = settings.console_port != 0 and await says_ready(settings.console_port)
    seen = f"port {settings.console_port} {'is ready' if ready else 'does not say that it is ready'}"
    return Finding("Console", ok=ready, seen=seen, advice="Start it (`coronet console`), or look into its log.")
