"""Checks of this machine: the limit on open files, and the start of a parser process."""

import resource

from service.errors import CoronetError
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import Confinement, Document
from service.operations.doctor.check_report import CheckResult

MIN_OPEN_FILES = 1024
_SAMPLE_FEED = b"<rss version='2.0'><channel><title>T</title><item><title>a</title></item></channel></rss>"
_PARSER_ADVICE = "Workers cannot parse documents. Raise the limits of memory and processes (`ulimit -v`, `ulimit -u`)."
_CONFINEMENTS: dict[Confinement | None, str] = {
    "seccomp": "confined by a seccomp filter: no files, no network",
    "rlimits": "confined by resource limits only: no files, no network; this kernel supports no seccomp filter",
}


def check_file_limit() -> CheckResult:
    """Check the limit on open files, which also limits connections."""
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
