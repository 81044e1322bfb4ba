"""A machine with a bare Debian: a root folder made by debootstrap, and processes in namespaces that see nothing else.

How packages of Debian and of Python are reached is copied from the machine that runs this.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests.containers.build import debootstrap, pip_settings
from tests.support.waiting import until

_ENTER_ROOT = Path(__file__).with_name("enter_root.sh")
_START_SYSTEMD = _ENTER_ROOT.with_name("start_systemd.sh")
_COPIED = ("/etc/resolv.conf", "/etc/hosts")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
USER = "alice"
"""A person's account, besides root."""


class Machine:
    """A running machine; its processes end with it. ``root`` is its root folder, as this machine sees it."""

    def __init__(self, root: Path, pid: int, namespaces: tuple[str, ...]) -> None:
        self.root = root
        self._pid = pid
        self._namespaces = namespaces

    def argv(self, command: str, user: str = "root") -> list[str]:
        """Return the command line that runs a shell command inside, in the user's home."""
        home = "/root" if user == "root" else f"/home/{user}"
        environ = {
            **{name: os.environ[name] for name in _PROXIES if name in os.environ},
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": home,
            "USER": user,
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        enter = ["nsenter", f"--target={self._pid}", *self._namespaces, "--root", f"--wd={self.root}"]
        settings = [f"{name}={value}" for name, value in environ.items()]
        as_user = [] if user == "root" else ["runuser", "-u", user, "--"]
        return [*enter, "env", "-i", *settings, *as_user, "sh", "-ec", f"cd {home}\n{command}"]

    def beside(self, *argv: str) -> list[str]:
        """Return the command line that runs a program of this machine in the network of the other one."""
        return ["nsenter", f"--target={self._pid}", "--net", *argv]

    async def run(self, command: str, user: str = "root") -> str:
        """Run a shell command inside; return its output. Raises RuntimeError with the output if it fails."""
        return await run(self.argv(command, user), command)

    async def install(self, *packages: str) -> None:
        """Install packages of Debian as people do; their servers are not started, as systemd does not run here."""
        await self.run("apt-get update")
        await self.run(f"RUNLEVEL=1 apt-get install --yes --no-install-recommends {shlex.join(packages)}")

    @contextlib.asynccontextmanager
    async def running(self, command: str, user: str = "root") -> AsyncIterator[None]:
        """Run a shell command inside until the block ends; its output is in ``running.log`` in the root folder."""
        with (self.root / "running.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *self.argv(command, user), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        watching = asyncio.create_task(self._watch(process, command))
        body = asyncio.current_task()
        watching.add_done_callback(lambda done: body.cancel() if body and not done.cancelled() else None)
        try:
            yield
        except asyncio.CancelledError:
            if watching.done():
                await watching
            raise
        finally:
            watching.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await process.wait()

    async def _watch(self, process: asyncio.subprocess.Process, command: str) -> None:
        status = await process.wait()
        raise RuntimeError(f"{command} ended with {status}:\n{(self.root / 'running.log').read_text()[-3000:]}")


async def run(argv: list[str], shown: str) -> str:
    """Run a program; return its output. Raises RuntimeError with the output if it fails."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{shown} failed with {process.returncode}:\n{output.decode(errors='replace')[-3000:]}")
    return output.decode(errors="replace")


def make_root(root: Path) -> None:
    """Make a bare Debian with an account for a person."""
    debootstrap(root)
    settings, authority = pip_settings()
    if authority is not None:
        settings["cert"] = "/etc/pip-authority.crt"
        shutil.copy(authority, root / "etc/pip-authority.crt")
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (root / "etc/pip.conf").write_text(f"[global]\n{lines}", encoding="utf-8")
    for path in _COPIED:
        shutil.copy(path, root / path.lstrip("/"))


@contextlib.asynccontextmanager
async def machine(root: Path, *, with_systemd: bool = False) -> AsyncIterator[Machine]:
    """Run a machine over a root folder, until the block ends.

    With systemd, it has a network of its own with nothing but loopback; otherwise it has the network of this machine.
    """
    namespaces: tuple[str, ...] = ("--mount", "--pid", "--ipc", "--uts")
    program = ["sleep", "infinity"]
    if with_systemd:
        namespaces += ("--cgroup", "--net")
        shutil.copy(_START_SYSTEMD, root)
        program = [f"/{_START_SYSTEMD.name}"]
    with (root / "machine.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("unshare", *namespaces, "--fork", "--kill-child=SIGKILL", str(_ENTER_ROOT), str(root), *program),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    ready = "systemctl is-active basic.target" if with_systemd else "true"

    async def is_running() -> bool:
        if process.returncode is not None:
            raise RuntimeError((root / "machine.log").read_text(encoding="utf-8"))
        if not (found := children.read_text().split()):
            return False
        with contextlib.suppress(RuntimeError):
            await Machine(root, int(found[0]), namespaces).run(f"{ready} && test ! -e /former/etc")
            return True
        return False

    try:
        await until(is_running, f"the machine runs; see {root}/machine.log", within_s=60)
        yield Machine(root, int(children.read_text()), namespaces)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
