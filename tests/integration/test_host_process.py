"""A process with several programs: one readiness, one end, and what it tells its service manager."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

from service.embedded.ports import is_ready
from service.errors import OperationalError
from service.host_process import HostedProgram, HostProcess, NotReady, serve_programs
from service.settings import Settings
from tests.support.waiting import until


class _Program(HostedProgram):
    """A program that runs until the test ends it."""

    name = "first"
    running: "dict[str, _Program]"

    async def run(self, process: HostProcess) -> None:
        self.process = process
        self.is_prepared = False
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running[self.name] = self
        try:
            await self.end
        finally:
            del self.running[self.name]

    def check_ready(self) -> None:
        if self.name not in self.running or not self.running[self.name].is_prepared:
            raise NotReady(f"The {self.name} is not prepared.")


class _SecondProgram(_Program):
    name = "second"


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    return Settings(redis_url=clean_redis, metrics_port=unused_port())


@contextlib.asynccontextmanager
async def both(settings: Settings) -> AsyncIterator[tuple[dict[str, _Program], "asyncio.Task[None]"]]:
    """Run both programs in one process; yield the running ones by name, and the process's task."""
    running: dict[str, _Program] = {}
    _Program.running = running
    task = asyncio.create_task(serve_programs(settings, [_Program, _SecondProgram]))
    try:
        await until(lambda: _are_running(running, task), "both programs are running")
        yield running, task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _are_running(running: dict[str, _Program], task: "asyncio.Task[None]") -> bool:
    assert not task.done(), task.exception()
    return len(running) == 2


async def test_the_process_is_ready_when_all_programs_are(settings: Settings) -> None:
    async with both(settings) as (running, _):
        assert not await is_ready(settings.metrics_port)
        running["first"].is_prepared = True
        assert not await is_ready(settings.metrics_port)
        running["second"].is_prepared = True
        assert await is_ready(settings.metrics_port)
        await running["first"].process.check_ready()


async def test_all_programs_announce_the_same_metrics(settings: Settings) -> None:
    async with both(settings) as (running, _):
        urls = {program.process.metrics_url for program in running.values()}
        assert urls == {f"http://127.0.0.1:{settings.metrics_port}/metrics"}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda program: program.end.set_result(None), id="without an error"),
        pytest.param(lambda program: program.end.set_exception(ValueError("a bug")), id="by a bug"),
        pytest.param(lambda program: program.end.cancel(), id="by a cancellation from within"),
    ],
)
async def test_the_process_fails_if_one_program_ends(
    settings: Settings, capsys: pytest.CaptureFixture[str], end: Callable[[_Program], None]
) -> None:
    async with both(settings) as (running, task):
        end(running["second"])
        await asyncio.wait([task], timeout=10)
        with pytest.raises(OperationalError, match="The second ended unexpectedly"):
            task.result()
        assert running == {}, "the other program has been stopped"
    assert "program ended unexpectedly" in capsys.readouterr().out


class _ServiceManager:
    """The receiving end of the notifications, as systemd has it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self.received: list[str] = []

    async def receive(self) -> None:
        while True:
            datagram = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
            self.received += datagram.decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_ServiceManager]:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    listener = _ServiceManager(address)
    receiver = asyncio.create_task(listener.receive())
    yield listener
    receiver.cancel()
    await asyncio.wait([receiver])
    listener.close()


async def test_the_service_manager_is_notified_of_readiness_and_shutdown(
    settings: Settings, manager: _ServiceManager
) -> None:
    async with both(settings) as (running, _):
        running["first"].is_prepared = True
        await until(lambda: _has(manager, "STATUS=The second is not prepared."), "the reason why it is not ready")
        assert "EXTEND_TIMEOUT_USEC=30000000" in manager.received
        assert "READY=1" not in manager.received
        running["second"].is_prepared = True
        await until(lambda: _has(manager, "READY=1"), "that it is ready")
        assert "STATUS=Ready." in manager.received
        assert "STOPPING=1" not in manager.received
    await until(lambda: _has(manager, "STOPPING=1"), "that it ends")
    assert manager.received.count("READY=1") == 1


async def test_watchdog_notifications_stop_while_the_event_loop_hangs(
    settings: Settings, manager: _ServiceManager
) -> None:
    async with both(settings) as (running, _):
        running["first"].is_prepared = running["second"].is_prepared = True
        await until(lambda: _has(manager, "READY=1"), "that it is ready")
        manager.received.clear()
        await until(lambda: _has(manager, "WATCHDOG=1"), "a sign of life")
        await until(lambda: _has(manager, "WATCHDOG=1", times=3), "regular signs of life")
        assert not [each for each in manager.received if each.startswith("EXTEND_TIMEOUT_USEC")]
        before = len(manager.received)
        time.sleep(0.3)  # noqa: ASYNC251 - the loop hangs for six signs of life
        await asyncio.sleep(0)
        assert len(manager.received) <= before + 1


async def _has(manager: _ServiceManager, text: str, times: int = 1) -> bool:
    return manager.received.count(text) >= times
