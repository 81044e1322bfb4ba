"""A network namespace that is the whole Internet: every address of the world is local in it, and nothing is outside.

It is held by a process that reads a pipe of ours. So the namespace, its routes and its mounts are
gone when we are, however we ended, and nothing of them is ever written to this machine's disk.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]

CORONET = Path(sys.executable).with_name("coronet")

UNREACHABLE = "198.41.0.4"
"""A public address that is not there."""

_HOLD = """
set -e
mount --bind "$1" /etc/resolv.conf
ip link set lo up
ip route add local default dev lo
ip -6 route add local default dev lo
ip route add unreachable "$2" table local
echo ready
exec cat >/dev/null
"""


class Namespace:
    """Where programs can be run, beside the others of the same namespace; they see this machine's files."""

    def __init__(self, holder_pid: int) -> None:
        self._holder_pid = holder_pid

    def command(self, *argv: str | Path) -> list[str]:
        """Return what to run instead, so that it runs in the namespace, in the project's folder."""
        enter = ["nsenter", f"--target={self._holder_pid}", "--user", "--preserve-credentials", "--net", "--mount"]
        return [*enter, f"--wd={ROOT}", "--", *map(str, argv)]

    @contextlib.contextmanager
    def running(self, *argv: str | Path, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program with these variables added to its environment; it is killed at the block's end."""
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            self.command(*argv), env={**os.environ, **environ}, stdin=nothing, stdout=nothing, stderr=nothing
        ) as program:
            try:
                yield program
            finally:
                program.kill()


@contextlib.contextmanager
def namespace(scratch: Path) -> Iterator[Namespace]:
    """Make a namespace whose name server is its own 127.0.0.1; ``scratch`` is a directory for its files."""
    resolv_conf = scratch / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\noptions timeout:5 attempts:5\n")
    hold = ["sh", "-c", _HOLD, "hold", str(resolv_conf), UNREACHABLE]
    with started(["unshare", "--user", "--map-root-user", "--net", "--mount", *hold]) as holder:
        yield Namespace(holder.pid)


@contextlib.contextmanager
def started(argv: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that says ``ready`` and ends when its standard input does, at the latest at the block's end."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert output(program).readline() == "ready\n", f"{argv} did not start"
            yield program
        finally:
            program.kill()


def output(program: "subprocess.Popen[str]") -> IO[str]:
    assert program.stdout is not None
    return program.stdout
