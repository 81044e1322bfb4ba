"""This machine: how many files may be open, whether documents can be parsed; and the console on it."""

import resource

from service.doctor.finding import Finding
from service.errors import CoronetError
from service.feeds.sandbox import ParserPool
from service.feeds.wire import Confinement, Document
from service.settings import Settings
from service.stack.ports import says_ready

FEWEST_FILES = 1024

_FEED = b"<rss version='2.0'><channel><title>T</title><item><title>a</title></item></channel></rss>"
_NO_PARSER = "Workers read nothing without it. Raise the limits on memory and processes (`ulimit -v`, `ulimit -u`)."
_CONFINEMENTS: dict[Confinement | None, str] = {
    "seccomp": "no files and no network, by a seccomp filter",
    "rlimits": "no files and no network, by resource limits only: this kernel takes no seccomp filter of ours",
}


def check_file_limit() -> Finding:
    """See whether enough files (that is, connections) may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES
    advice = f"Raise it to {FEWEST_FILES} or more: `ulimit -n 4096`, or LimitNOFILE= in a systemd unit."
    return Finding("Open files", ok=enough, seen=f"at most {soft}", advice=advice)


async def check_parser() -> Finding:
    """Read a document in a parser process, and see what keeps that from files and network."""
    try:
        async with ParserPool(1) as parsers:
            await parsers.read(Document(_FEED, "https://example.org/", {}))
            return Finding("Parser", ok=True, seen=_CONFINEMENTS[parsers.confinement])
    except CoronetError as error:
        return Finding("Parser", ok=False, seen=str(error), advice=_NO_PARSER)


async def check_console(settings: Settings) -> Finding:
    """Ask the console's ``/readyz``; it is looked for on this machine."""
    ready = settings.console_port != 0 and await says_ready(settings.console_port)
    seen = f"port {settings.console_port} {'is ready' if ready else 'does not say that it is ready'}"
    return Finding("Console", ok=ready, seen=seen, advice="Start it (`coronet console`), or look into its log.")
