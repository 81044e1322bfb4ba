"""Workers of one machine see each other die: a killed process's nodes leave the ring at once, before leases run out.

The kernel tells each worker of the end of the others (pidfd_open(2)), if they share its process numbers. Whoever is
told has the dead one's nodes leave the ring, and its own nodes look at the ring; that several say it does no harm, and
should it ever be wrong, a node that still lives joins again. A machine that dies as a whole is missed when its leases
run out, and so is a worker where the kernel tells nothing.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import structlog

from service.errors import StoreUnavailable
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from service.store import Store
from workers.tasks import Tasks

_STARTED = 19
"""Of what follows the name in /proc/PID/stat, the place of when the process was started (proc(5))."""

log = structlog.get_logger(__name__)


def process_of(pid: int) -> str:
    """Return a name that no other process ever has, "" if this one is gone: boot, process numbers, number, start."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        numbers = Path("/proc/self/ns/pid").stat().st_ino
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{boot}:{numbers}:{pid}:{stat.rpartition(')')[2].split()[_STARTED]}"


class _Watched(msgspec.Struct):
    pidfd: int
    nodes: dict[NodeId, NodeInfo]


class Witness:
    """One worker process's eye on the others of its machine."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        """Have the dead leave this store's ring, in the background."""
        self._store = store
        self._tasks = tasks
        self._me = process_of(os.getpid())
        self._version = -1
        self._watched: dict[str, _Watched] = {}
        self._wake: set[Callable[[], None]] = set()

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Within, call this when nodes have left because their process had died."""
        self._wake.add(wake)
        try:
            yield
        finally:
            self._wake.discard(wake)

    def look(self, view: RingView) -> None:
        """Watch over those who are in the ring now, if it is newer than what was seen."""
        if view.version <= self._version:
            return
        self._version = view.version
        present: dict[str, dict[NodeId, NodeInfo]] = {}
        for info in view.nodes:
            if info.process != self._me and self._is_here(info.process):
                present.setdefault(info.process, {})[info.id] = info
        for process in self._watched.keys() - present.keys():
            self._close(process)
        for process, nodes in present.items():
            if process in self._watched:
                self._watched[process].nodes = nodes
            else:
                self._watch(process, nodes)

    def close(self) -> None:
        """Watch over nobody any more."""
        for process in list(self._watched):
            self._close(process)

    def _is_here(self, process: str) -> bool:
        return bool(self._me) and process.split(":")[:2] == self._me.split(":")[:2]

    def _watch(self, process: str, nodes: dict[NodeId, NodeInfo]) -> None:
        pid = int(process.split(":")[2])
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._tasks.start(self._leave(nodes))
            return
        except OSError as error:
            log.info("cannot watch over a worker", process=pid, error=str(error))
            return
        self._watched[process] = _Watched(pidfd, nodes)
        if process_of(pid) == process:
            asyncio.get_running_loop().add_reader(pidfd, self._died, process)
        else:  # its number is another's by now
            self._died(process)

    def _died(self, process: str) -> None:
        self._tasks.start(self._leave(self._close(process)))

    def _close(self, process: str) -> dict[NodeId, NodeInfo]:
        watched = self._watched.pop(process)
        asyncio.get_running_loop().remove_reader(watched.pidfd)
        os.close(watched.pidfd)
        return watched.nodes

    async def _leave(self, nodes: dict[NodeId, NodeInfo]) -> None:
        try:
            await self._store.ring.leave(*nodes.values())
            await self._store.inboxes.discard(tuple(nodes))
        except StoreUnavailable as error:
            log.info("the dead are left to their leases", nodes=len(nodes), error=str(error))
            return
        log.info("a worker has died", nodes=len(nodes))
        for wake in tuple(self._wake):
            wake()
