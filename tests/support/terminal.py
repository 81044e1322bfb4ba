"""A real terminal (tmux): tests type into a program and read its screen.

The tmux server has its own socket and no user configuration.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from tests.support.waiting import until

_COLUMNS: Final = 140
_LINES: Final = 48
"""Height of the window, which shows a complete first chat without scrolling."""


class Terminal:
    """One program in a terminal; :func:`terminal` starts and ends it."""

    def __init__(self, socket: Path) -> None:
        """Use the tmux server at ``socket``."""
        self._socket = socket

    async def start(self, command: str, environment: Mapping[str, str]) -> None:
        """Run a shell command in a new window."""
        size = ("-x", str(_COLUMNS), "-y", str(_LINES))
        stated = (part for name, value in environment.items() for part in ("-e", f"{name}={value}"))
        await self._tmux("-f", "/dev/null", "new-session", "-d", *size, *stated, command)

    async def type(self, line: str) -> None:
        """Type a line and press Enter."""
        await self._tmux("send-keys", "-l", "--", line)
        await self._tmux("send-keys", "Enter")

    async def screen(self) -> str:
        """Return the screen's text without trailing blanks."""
        return await self._tmux("capture-pane", "-p")

    async def shows(self, words: str, *, within_s: float = 20.0) -> str:
        """Wait until the screen contains ``words``, and return its text; raises AssertionError with it otherwise."""
        last = ""

        async def has_words() -> bool:
            nonlocal last
            last = await self.screen()
            return words in last

        try:
            await until(has_words, f"{words!r} on the screen", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{last}") from None
        return last

    async def close(self) -> None:
        """Close the terminal with its program, if they are running."""
        with contextlib.suppress(AssertionError):
            await self._tmux("kill-server")

    async def _tmux(self, *command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-u", "-S", str(self._socket), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, trouble = await process.communicate()
        assert process.returncode == 0, f"tmux {' '.join(command)}: {trouble.decode()}"
        return output.decode()


@contextlib.asynccontextmanager
async def terminal(command: str, environment: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Yield a terminal in which a command runs, and end both afterwards."""
    with tempfile.TemporaryDirectory(prefix="tmux-") as directory:  # a short path: sockets have no other
        opened = Terminal(Path(directory) / "socket")
        try:
            await opened.start(command, environment)
            yield opened
        finally:
            await opened.close()
