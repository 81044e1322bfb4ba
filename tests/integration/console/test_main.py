"""The console as a process: without Redis, with Redis again, and its shutdown."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp.test_utils import unused_port

from service.embedded.private_redis import PrivateRedis

_PROGRAM = """
import asyncio
from service.console.main import ConsoleProgram
from service.host_process import serve_programs
from service.settings import load
from service.asyncio_tasks import run_until_stopped
asyncio.run(run_until_stopped(serve_programs(load(), [ConsoleProgram])))
"""


@asynccontextmanager
async def _console(redis_url: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {"CORONET_REDIS_URL": redis_url, "CORONET_CONSOLE_PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _get(http: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    """Send requests until the console listens."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with http.get(path, allow_redirects=False) as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)


async def test_the_console_serves_without_redis_and_stops_cleanly(tmp_path: Path) -> None:
    port = unused_port()
    redis = PrivateRedis(tmp_path / "redis")
    async with _console(redis.url, port) as process, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        status, text = await _get(http, "/channels")
        assert status == 503
        assert "The database is unavailable" in text
        assert (await _get(http, "/livez"))[0] == 200
        assert (await _get(http, "/static/console.css"))[0] == 200
        assert (await _get(http, "/readyz"))[0] == 503

        assert process.stdout is not None
        async with redis:
            async with asyncio.timeout(20):
                said = ""
                while "/setup?token=" not in said:
                    said = (await process.stdout.readline()).decode()
            link = said.split()[-1]
            assert link.startswith(f"http://127.0.0.1:{port}/setup?token=")
            assert (await _get(http, link))[0] == 200
            assert (await _get(http, "/readyz"))[0] == 200
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                assert await process.wait() == 0
