"""A program that fetches each URL it reads, in production settings, and says how that ended.

Runs in a network namespace until its standard input ends. A line in is a URL as JSON; a line out is the HTTP
status, or the code of the error and what it says, as JSON.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from service.errors import CoronetError
from service.net.fetcher import Fetcher
from service.settings import Settings
from tests.support.netns import Namespace, output, started


class Asker:
    """What the others see of it."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program

    def ask(self, url: str) -> tuple[str, str]:
        """Return how fetching a URL ended: status or error code, and the error's words."""
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps(url) + "\n")
        self._program.stdin.flush()
        code, words = json.loads(output(self._program).readline())
        return code, words


@contextlib.contextmanager
def asker(place: Namespace) -> Iterator[Asker]:
    """Run it in a namespace."""
    with started(place.command(sys.executable, "-m", "tests.support.fetcher_process")) as program:
        yield Asker(program)


async def _answer(fetcher: Fetcher, url: str) -> tuple[str, str]:
    try:
        return str((await fetcher.fetch(url)).status), ""
    except CoronetError as error:
        return error.code, str(error)


async def _run() -> None:
    settings = Settings()
    fetcher = Fetcher(
        user_agent="Coronet/0 (+test)", allow_private=settings.allow_private, extra_ports=settings.extra_ports
    )
    async with fetcher:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            sys.stdout.write(json.dumps(await _answer(fetcher, json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run())
