"""A network namespace in which every address is local.

A process that reads a pipe of the test holds the namespace. Therefore the namespace, its routes and its mounts
disappear with the test process, and nothing is written to the machine's configuration.
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
"""A public address that is unreachable in the namespace."""

_NOBODY = "02:00:00:00:00:99"

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
    """A network namespace in which programs can run, with access to this machine's files."""

    def __init__(self, holder_pid: int) -> None:
        self._holder_pid = holder_pid

    def command(self, *argv: str | Path) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace, in the project's folder."""
        enter = ["nsenter", f"--target={self._holder_pid}", "--user", "--preserve-credentials", "--net", "--mount"]
        return [*enter, f"--wd={ROOT}", "--", *map(str, argv)]

    @contextlib.contextmanager
    def dropping(self, *addresses: str) -> Iterator[None]:
        """Drop all packets to these addresses, so that connections to them hang; call it once at a time."""
        self._ip("link", "add", "sink", "type", "veth", "peer", "name", "drain")
        try:
            for device in ("sink", "drain"):
                self._ip("link", "set", device, "up")
            for address in addresses:
                self._ip("neighbour", "add", address, "lladdr", _NOBODY, "dev", "sink")
                self._ip("route", "add", address, "dev", "sink", "src", "127.0.0.1", "table", "local")
            yield
        finally:
            self._ip("link", "delete", "sink")

    def _ip(self, *arguments: str) -> None:
        subprocess.run(self.command("ip", *arguments), check=True)

    @contextlib.contextmanager
    def running(self, *argv: str | Path, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program with additional environment variables; kill it at the end of the block."""
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
    """Create a namespace with the name server 127.0.0.1; ``scratch`` is a directory for its files."""
    resolv_conf = scratch / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\noptions timeout:5 attempts:5\n")
    hold = ["sh", "-c", _HOLD, "hold", str(resolv_conf), UNREACHABLE]
    with started(["unshare", "--user", "--map-root-user", "--net", "--mount", *hold]) as holder:
        yield Namespace(holder.pid)


@contextlib.contextmanager
def started(argv: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that prints ``ready``; it ends with its standard input, or is killed at the end of the block."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert output(program).readline() == "ready\n", f"{argv} did not start"
            yield program
        finally:
            program.kill()


def output(program: "subprocess.Popen[str]") -> IO[str]:
    assert program.stdout is not None
    return program.stdout
