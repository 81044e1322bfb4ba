"""The private Redis as a real process."""

import asyncio
import os
import signal
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.embedded.private_redis import PrivateRedis
from service.errors import OperationalError


async def run_commands(url: str, *commands: str) -> list[str]:
    """Send inline commands; return the first line of each reply."""
    reader, writer = await asyncio.open_unix_connection(urlsplit(url).path)
    try:
        writer.write("".join(f"{command}\r\n" for command in commands).encode())
        return [(await reader.readline()).decode().strip() for _ in commands]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    redis = PrivateRedis(tmp_path / "redis")
    await redis.start()
    try:
        assert await run_commands(redis.url, "SET a 1", "INCR a") == ["+OK", ":2"]
        os.kill(redis.pid, signal.SIGKILL)
        await redis.stop()
        await redis.start()
        assert await run_commands(redis.url, "INCR a") == [":3"]
    finally:
        await redis.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_its_owner_can_connect(tmp_path: Path) -> None:
    async with PrivateRedis(tmp_path / "redis") as redis:
        socket = Path(urlsplit(redis.url).path)
        assert (mode(socket), mode(socket.parent)) == (0o700, 0o700)


async def test_the_embedded_extras_redis_is_used_if_none_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with PrivateRedis(tmp_path / "redis") as redis:
        assert await run_commands(redis.url, "PING") == ["+PONG"]


async def test_a_failed_start_is_reported_with_the_end_of_the_log(tmp_path: Path) -> None:
    directory = tmp_path / "redis"
    (directory / "appendonlydir").mkdir(parents=True)
    (directory / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n", encoding="utf-8")
    redis = PrivateRedis(directory)
    with pytest.raises(OperationalError, match=r"(?s)redis ended with status 1.*manifest"):
        await redis.start()


async def test_a_path_too_long_for_a_socket_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="choose a shorter state directory"):
        await PrivateRedis(tmp_path / ("d" * 120)).start()


async def test_the_shared_redis_fixture_is_empty(clean_redis: str) -> None:
    assert await run_commands(clean_redis, "DBSIZE") == [":0"]
