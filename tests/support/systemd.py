"""A systemd of the test's own, in namespaces of its own over a copy of this machine's root; needs root."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
_NAMESPACES = ("--mount", "--pid", "--ipc", "--uts", "--cgroup")


class Systemd:
    """A running systemd; ``pid`` is its process id on this machine."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def run(self, *argv: str, stdin: str = "") -> str:
        """Run a command inside; return its output. Raises AssertionError with the output if it fails."""
        process = await asyncio.create_subprocess_exec(
            *("nsenter", f"--target={self._pid}", *_NAMESPACES, "--root", "--wd=/", "env", "-i"),
            *("PATH=/usr/sbin:/usr/bin:/sbin:/bin", *argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode == 0, f"{argv}: {output.decode()}"
        return output.decode()

    async def write(self, path: str, text: str) -> None:
        """Write a file of root's, mode 0600."""
        await self.run("install", "-m", "600", "/dev/stdin", path, stdin=text)

    async def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return (await self.run("systemctl", "show", "--value", f"--property={name}", unit)).strip()


@contextlib.asynccontextmanager
async def systemd(directory: Path) -> AsyncIterator[Systemd]:
    """Run a systemd until the block ends; its messages are in the file ``systemd.log`` in ``directory``."""
    scratch = directory / "scratch"
    scratch.mkdir()
    with (directory / "systemd.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("unshare", *_NAMESPACES, "--fork", "--kill-child=SIGKILL"),
            *(str(ROOT / "tests/support/systemd.sh"), str(scratch), str(ROOT), sys.prefix, sys.base_prefix),
            stdout=log,
            stderr=log,
        )
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        async def is_running() -> bool:
            assert process.returncode is None, (directory / "systemd.log").read_text()
            if not (found := children.read_text().split()):
                return False
            with contextlib.suppress(AssertionError):
                await Systemd(int(found[0])).run("systemctl", "is-active", "basic.target")
                return True
            return False

        await until(is_running, f"systemd runs; see {directory}/systemd.log")
        yield Systemd(int(children.read_text()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


def why_impossible() -> str:
    """Return why no systemd can run here; "" if one can."""
    if missing := [name for name in ("/lib/systemd/systemd", "unshare", "nsenter") if shutil.which(name) is None]:
        return f"{', '.join(missing)} is not installed"
    probe = ["unshare", *_NAMESPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return "" if subprocess.run(probe, capture_output=True, check=False).returncode == 0 else "not root"
