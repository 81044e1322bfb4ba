"""The supervisor and its children, with tiny stand-ins for the programs."""

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

from service.embedded.supervisor import Child, Program, Supervisor, environment, pause_s
from service.errors import OperationalError
from tests.support.processes import children_of, is_alive
from tests.support.waiting import until_so

STEADY = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + STEADY
WITH_A_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STEADY!r}, sys.argv[1]]).wait()"


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Make programs that run a line of Python and answer once they touched a file."""

    def make(name: str, code: str = STEADY) -> Program:
        sign = tmp_path / f"{name}.sign"

        async def answers() -> bool:
            return sign.exists()

        return Program(name, (sys.executable, "-c", code, str(sign)), tmp_path / f"{name}.log", answers)

    return make


class Told(list[str]):
    """What a supervisor told."""

    def said(self, text: str) -> bool:
        return any(text in line for line in self)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest_asyncio.fixture
async def supervisor(told: Told) -> AsyncIterator[Supervisor]:
    running = Supervisor(told.append)
    yield running
    await running.stop(last=())


async def test_a_killed_program_comes_back_with_a_new_process(
    supervisor: Supervisor, program: Callable[..., Program], told: Told
) -> None:
    await supervisor.add(program("steady"))
    before = supervisor.pids["steady"]
    os.kill(before, signal.SIGKILL)
    await until_so(lambda: told.said("steady is back"), "it was started again")
    assert told.said("steady was killed by signal 9; starting it again. Its log: ")
    assert supervisor.pids["steady"] != before
    assert is_alive(supervisor.pids["steady"])
    assert not is_alive(before)


async def test_what_a_killed_program_had_started_goes_with_it(
    supervisor: Supervisor, program: Callable[..., Program], told: Told
) -> None:
    await supervisor.add(program("parent", WITH_A_CHILD))
    (child,) = children_of(supervisor.pids["parent"])
    os.kill(supervisor.pids["parent"], signal.SIGKILL)
    await until_so(lambda: told.said("parent is back"), "it was started again")
    await until_so(lambda: not is_alive(child), "its child is gone too")


async def test_stopping_ends_even_what_ignores_sigterm(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.embedded.supervisor._GRACE_S", 0.2)
    supervisor = Supervisor(print)
    await supervisor.add(program("steady"))
    await supervisor.add(program("stubborn", STUBBORN))
    pids = list(supervisor.pids.values())
    await supervisor.stop(last={"steady"})
    assert not any(map(is_alive, pids))


async def test_a_program_that_dies_at_once_is_reported_with_its_last_words(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    with pytest.raises(OperationalError, match=r"(?s)broken ended with status 3.*no such luck"):
        await supervisor.add(program("broken", "import sys; print('no such luck', flush=True); sys.exit(3)"))


async def test_a_program_that_does_not_exist_is_reported(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    lost = program("lost")
    with pytest.raises(OperationalError, match="lost cannot be started"):
        await supervisor.add(Program("lost", ("/nonexistent/program",), lost.log, lost.answers))


async def test_a_program_that_never_answers_is_given_up(program: Callable[..., Program]) -> None:
    child = await Child.start(program("mute", "import time; time.sleep(600)"))
    try:
        with pytest.raises(OperationalError, match="mute did not answer within"):
            await child.ready(timeout_s=0.1)
    finally:
        await child.stop()


SUPERVISING = f"""
import asyncio, sys
from pathlib import Path
from service.embedded.supervisor import Program
from service.embedded.supervisor import Supervisor

async def main() -> None:
    sign = Path(sys.argv[1])
    async def answers() -> bool:
        return sign.exists()
    argv = (sys.executable, "-c", {STEADY!r}, str(sign))
    supervisor = Supervisor(print)
    await supervisor.add(Program("steady", argv, sign.with_suffix(".log"), answers))
    print(supervisor.pids["steady"], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_kill_9_of_the_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUPERVISING, str(tmp_path / "sign"), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    await until_so(lambda: not is_alive(child), "the child died with its parent")
    await parent.wait()


def test_pauses_between_restarts_grow_to_a_bound_that_heals_within_30_s() -> None:
    pauses = [pause_s(deaths) for deaths in range(1, 2000)]
    assert pauses[:7] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    assert pauses[-1] == 8.0


def test_what_a_child_is_told_wins_over_the_environment_in_either_form() -> None:
    inherited = {"PATH": "/bin", "CORONET_REDIS_PASSWORD": "a", "CORONET_XMPP_PASSWORD_FILE": "b"}
    told = {"CORONET_REDIS_PASSWORD_FILE": "c", "CORONET_XMPP_PASSWORD": "d"}
    assert environment(inherited, told) == {"PATH": "/bin"} | told


async def test_a_log_that_has_grown_large_is_set_aside(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.embedded.supervisor._LOG_CAP_BYTES", 10)
    wordy = program("wordy")
    wordy.log.write_text("many words of the past\n", encoding="utf-8")
    child = await Child.start(wordy)
    await child.stop()
    assert wordy.log.with_suffix(".1").read_text(encoding="utf-8") == "many words of the past\n"
    assert wordy.log.read_text(encoding="utf-8") == ""
