"""Bots as separate processes (`coronet bot`)."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from service.settings import Settings


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables for a program with these settings."""
    values = {
        "PRESET": settings.preset,
        "REDIS_URL": settings.redis_url,
        "XMPP_LOGIN": settings.xmpp_login,
        "XMPP_JID": settings.xmpp_jid,
        "XMPP_SHARDS": " ".join(settings.xmpp_shards),
        "XMPP_PASSWORD": settings.xmpp_password.get_secret_value(),
        "XMPP_HOST": settings.xmpp_host,
        "XMPP_PORT": str(settings.xmpp_port),
        "XMPP_CA_FILE": settings.xmpp_ca_file,
        "LEASE_TTL_S": str(settings.lease_ttl_s),
        "MESSAGES_PER_S_PER_USER": str(settings.messages_per_s_per_user),
        "MAX_COMMANDS_PER_MINUTE": str(settings.max_commands_per_minute),
    }
    return {f"CORONET_{name}": value for name, value in values.items()}


class BotProcess:
    """One running process of `coronet bot`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, environ: Mapping[str, str], log: Path) -> "BotProcess":
        """Start the process without waiting until it is connected."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "service.cli", "bot"),
                env={**os.environ, **environ},
                stdout=output,
                stderr=output,
                stdin=asyncio.subprocess.DEVNULL,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def bots(settings: Settings, directory: Path, count: int) -> AsyncIterator[list[BotProcess]]:
    """Run ``count`` bots with these settings; their logs are in ``directory``."""
    running: list[BotProcess] = []
    try:
        environ, logs = environment(settings), [directory / f"bot-{number}.log" for number in range(count)]
        running += await asyncio.gather(*(BotProcess.start(environ, log) for log in logs))
        yield running
    finally:
        for bot in running:
            await bot.kill()
