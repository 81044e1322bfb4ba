"""The supervisor and its child processes, with small Python programs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from service.embedded.child_process import Child, Program, child_environment
from service.embedded.supervisor import Supervisor, restart_delay_s
from service.errors import OperationalError
from tests.support.processes import children_of, is_alive
from tests.support.waiting import until_so

STEADY = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + STEADY
WITH_A_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STEADY!r}, sys.argv[1]]).wait()"


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Return a factory of programs that run Python code and are ready once they created a file."""

    def make(name: str, code: str = STEADY) -> Program:
        sign = tmp_path / f"{name}.sign"

        async def is_ready() -> bool:
            return sign.exists()

        return Program(name, (sys.executable, "-c", code, str(sign)), tmp_path / f"{name}.log", is_ready)

    return make


class Reports(list[str]):
    """The lines that a supervisor reported."""

    def contain(self, text: str) -> bool:
        return any(text in line for line in self)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest_asyncio.fixture
async def supervisor(reports: Reports) -> AsyncIterator[Supervisor]:
    running = Supervisor(reports.append)
    yield running
    await running.stop(last=())


async def test_a_killed_program_is_restarted(
    supervisor: Supervisor, program: Callable[..., Program], reports: Reports
) -> None:
    await supervisor.add(program("steady"))
    before = supervisor.pids["steady"]
    os.kill(before, signal.SIGKILL)
    await until_so(lambda: reports.contain("steady is back"), "it was started again")
    assert reports.contain("steady was killed by signal 9; restarting. Log: ")
    assert supervisor.pids["steady"] != before
    assert is_alive(supervisor.pids["steady"])
    assert not is_alive(before)


async def test_children_of_a_killed_program_are_killed(
    supervisor: Supervisor, program: Callable[..., Program], reports: Reports
) -> None:
    await supervisor.add(program("parent", WITH_A_CHILD))
    (child,) = children_of(supervisor.pids["parent"])
    os.kill(supervisor.pids["parent"], signal.SIGKILL)
    await until_so(lambda: reports.contain("parent is back"), "it was started again")
    await until_so(lambda: not is_alive(child), "its child was killed")


async def test_a_program_that_ignores_sigterm_is_killed(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.embedded.supervisor.GRACE_S", 0.2)
    supervisor = Supervisor(print)
    await supervisor.add(program("steady"))
    await supervisor.add(program("stubborn", STUBBORN))
    pids = list(supervisor.pids.values())
    await supervisor.stop(last={"steady"})
    assert not any(map(is_alive, pids))


async def test_a_failed_start_is_reported_with_the_end_of_the_log(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    with pytest.raises(OperationalError, match=r"(?s)broken ended with status 3.*no such luck"):
        await supervisor.add(program("broken", "import sys; print('no such luck', flush=True); sys.exit(3)"))


async def test_a_missing_program_is_reported(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    lost = program("lost")
    with pytest.raises(OperationalError, match="lost cannot be started"):
        await supervisor.add(Program("lost", ("/nonexistent/program",), lost.log, lost.is_ready))


async def test_a_program_that_is_never_ready_is_reported(program: Callable[..., Program]) -> None:
    child = await Child.start(program("mute", "import time; time.sleep(600)"))
    try:
        with pytest.raises(OperationalError, match="mute was not ready within"):
            await child.wait_until_ready(timeout_s=0.1)
    finally:
        await child.stop()


SUPERVISING = f"""
import asyncio, sys
from pathlib import Path
from service.embedded.supervisor import Program
from service.embedded.supervisor import Supervisor

async def main() -> None:
    sign = Path(sys.argv[1])
    async def is_ready() -> bool:
        return sign.exists()
    argv = (sys.executable, "-c", {STEADY!r}, str(sign))
    supervisor = Supervisor(print)
    await supervisor.add(Program("steady", argv, sign.with_suffix(".log"), is_ready))
    print(supervisor.pids["steady"], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_children_die_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUPERVISING, str(tmp_path / "sign"), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    await until_so(lambda: not is_alive(child), "the child died with its parent")
    await parent.wait()


def test_restart_delays_increase_to_8_seconds() -> None:
    delays_s = [restart_delay_s(exits) for exits in range(1, 2000)]
    assert delays_s[:7] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert all(earlier <= later for earlier, later in pairwise(delays_s))
    assert delays_s[-1] == 8.0


def test_overrides_replace_inherited_variables_with_or_without_file_suffix() -> None:
    inherited = {"PATH": "/bin", "CORONET_REDIS_PASSWORD": "a", "CORONET_XMPP_PASSWORD_FILE": "b"}
    overrides = {"CORONET_REDIS_PASSWORD_FILE": "c", "CORONET_XMPP_PASSWORD": "d"}
    assert child_environment(inherited, overrides) == {"PATH": "/bin"} | overrides


async def test_a_large_log_is_rotated_at_the_start(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.embedded.child_process._MAX_LOG_BYTES", 10)
    verbose = program("verbose")
    verbose.log.write_text("many words of the past\n", encoding="utf-8")
    child = await Child.start(verbose)
    await child.stop()
    assert verbose.log.with_suffix(".1").read_text(encoding="utf-8") == "many words of the past\n"
    assert verbose.log.read_text(encoding="utf-8") == ""
