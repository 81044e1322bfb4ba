"""``coronet serve`` and backups as units of a real systemd, confined as shipped. Run by ``make units``, as root."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp.test_utils import unused_port

from service.embedded import ports
from service.embedded.child_process import Child, Program
from service.embedded.private_prosody import PrivateProsody
from service.embedded.sample_publisher import SamplePublisher
from tests.support.chat import online
from tests.support.systemd import Systemd, systemd, why_impossible
from tests.support.waiting import until

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(180)]

UNIT = "coronet.service"
BACKUP = "coronet-backup.service"
SETTINGS = """
preset = "trial"
redis_url = "redis://127.0.0.1:{redis_port}/0"
xmpp_jid = "{prosody.bot_jid}"
xmpp_host = "127.0.0.1"
xmpp_port = {prosody.component_port}
console_port = {console_port}
poll_interval_s = 1.0
allow_private = true
"""
DROP_IN = """
[Service]
WatchdogSec=2s
StandardOutput=append:/run/coronet.log
StandardError=append:/run/coronet.log
# A Python that has been moved does not find its library.
Environment=LD_LIBRARY_PATH=/opt/python/lib
"""


@pytest_asyncio.fixture
async def redis_port(tmp_path: Path) -> AsyncIterator[int]:
    port = unused_port()
    server = shutil.which("redis-server") or ""
    argv = (server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path))
    program = Program("redis", argv, tmp_path / "redis.log", partial(ports.is_listening, port))
    child = await Child.start(program)
    try:
        await child.wait_until_ready(20)
        yield port
    finally:
        await child.stop()


@contextlib.asynccontextmanager
async def _log_on_failure(manager: Systemd) -> AsyncIterator[None]:
    try:
        yield
    except AssertionError as error:
        log = await manager.run("cat", "/run/coronet.log")
        raise AssertionError(f"{error}\n{log}") from error


async def _main_pid(manager: Systemd) -> str:
    return await manager.show(UNIT, "MainPID")


async def _until_restarted(manager: Systemd, former_pid: str) -> None:
    async def is_restarted() -> bool:
        return await _main_pid(manager) not in {former_pid, "0"} and await manager.show(UNIT, "SubState") == "running"

    await until(is_restarted, "systemd has restarted the unit", within_s=60)


async def _assert_backups_are_made_and_old_ones_removed(manager: Systemd) -> None:
    folder, timer = "/var/lib/coronet/backups", "coronet-backup.timer"
    await manager.run("systemctl", "start", timer)
    assert await manager.show(timer, "NextElapseUSecRealtime"), "the timer is set"
    await manager.run("systemctl", "start", BACKUP)  # returns when the backup is complete
    for name, days in (("coronet-old", 40), (".coronet-unfinished", 40), ("coronet-recent", 20), ("other", 40)):
        await manager.run("touch", "--date", f"{days} days ago", f"{folder}/{name}")
    await manager.run("systemctl", "start", BACKUP)
    left = set((await manager.run("ls", "--almost-all", folder)).split())
    made = left - {"coronet-recent", "other"}
    assert len(left) - len(made) == 2
    assert 1 <= len(made) <= 2, "two backups, which have the same name if they were made in the same second"
    assert all(name.startswith("coronet-20") for name in made)
    mode = await manager.run("stat", "--format=%a %U", f"{folder}/{min(made)}")
    assert mode == "600 coronet\n"


@pytest.mark.skipif(bool(why_impossible()), reason=why_impossible())
async def test_the_unit_starts_serves_is_restarted_backed_up_and_stops(
    tmp_path: Path, redis_port: int, prosody: PrivateProsody
) -> None:
    jid = await prosody.register("alice", "pw")
    async with systemd(tmp_path) as manager, SamplePublisher(tmp_path / "publisher") as publisher:
        await manager.run("systemd-sysusers")
        await manager.run("systemd-tmpfiles", "--create", "coronet.conf")
        settings = SETTINGS.format(redis_port=redis_port, prosody=prosody, console_port=unused_port())
        await manager.write("/etc/coronet/coronet.toml", settings)
        await manager.write("/etc/coronet/secrets/xmpp_password", prosody.component_secret)
        await manager.run("systemd-tmpfiles", "--create", "coronet.conf")
        for unit in (UNIT, BACKUP):
            await manager.run("mkdir", f"/run/units/{unit}.d")
            await manager.write(f"/run/units/{unit}.d/test.conf", DROP_IN)
        await manager.run("systemctl", "daemon-reload")

        async with _log_on_failure(manager):
            await manager.run("systemctl", "start", UNIT)  # returns when READY=1 has arrived
        assert await manager.show(UNIT, "StatusText") == "Ready."
        async with online(jid, "pw", "127.0.0.1", prosody.c2s_port, prosody.bot_jid) as alice:
            await publisher.publish("Before")
            assert "Before" in await alice.say(publisher.feed_url())
            await publisher.publish("Breaking news")
            await alice.wait_for(lambda message: "Breaking news" in message.body)

            for number in ("KILL", "STOP"):  # STOP: the event loop hangs, and the watchdog ends it
                pid = await _main_pid(manager)
                await manager.run("kill", f"-{number}", pid)
                await _until_restarted(manager, pid)
            await publisher.publish("After the restarts")
            await alice.wait_for(lambda message: "After the restarts" in message.body)

        async with _log_on_failure(manager):
            await _assert_backups_are_made_and_old_ones_removed(manager)
        assert await manager.show(UNIT, "NRestarts") == "2"
        await asyncio.wait_for(manager.run("systemctl", "stop", UNIT), 12)
        assert await manager.show(UNIT, "Result") == "success"
        assert await manager.show(UNIT, "ExecMainStatus") == "0"
