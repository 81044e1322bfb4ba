"""A program that fetches URLs with production settings in a network namespace, and reports the results.

It runs until its standard input is closed. An input line is a URL, and whether only public addresses are allowed for
it, as JSON; an output line is the HTTP status, or the error's code and text, as JSON.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from service.errors import CoronetError
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from service.settings import load
from tests.support.netns import Namespace, output, started


class FetcherProcess:
    """The client of a running fetcher program."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program

    def ask(self, url: str, *, public_only: bool = False) -> tuple[str, str]:
        """Fetch a URL; return the status or the error code, and the error's text."""
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps([url, public_only]) + "\n")
        self._program.stdin.flush()
        code, words = json.loads(output(self._program).readline())
        return code, words


@contextlib.contextmanager
def run_fetcher(place: Namespace, *variables: str) -> Iterator[FetcherProcess]:
    """Run the program in a namespace with environment variables, such as ``CORONET_ALLOWED_NETWORKS=…``."""
    with started(place.command("env", *variables, sys.executable, "-m", "tests.support.fetcher_process")) as program:
        yield FetcherProcess(program)


async def _answer(fetcher: Fetcher, url: str, *, public_only: bool) -> tuple[str, str]:
    try:
        return str((await fetcher.fetch(url, public_only=public_only)).status), ""
    except CoronetError as error:
        return error.code, str(error)


async def _run() -> None:
    settings = load()
    guard = AddressGuard(settings.allow_private, settings.extra_ports, settings.allowed_networks)
    async with Fetcher("Coronet/0 (+test)", guard) as fetcher:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            url, public_only = json.loads(line)
            sys.stdout.write(json.dumps(await _answer(fetcher, url, public_only=public_only)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run())
