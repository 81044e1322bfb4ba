"""A supervisor that restarts child processes when they exit: the first time at once, then after increasing delays."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from service.embedded.child_process import GRACE_S, LAST_GRACE_S, START_TIMEOUT_S, Child, Program, describe_exit
from service.errors import OperationalError

_STABLE_AFTER_S = 20.0
"""If a child ran for longer than this before its exit, its exits are counted from 1 again."""


def restart_delay_s(exits: int) -> float:
    """Return the delay in seconds before a program is restarted after ``exits`` consecutive exits.

    The delays are 0 after one exit, then 0.5, 1, 2, 4, 8, 8, …
    """
    return 0.0 if exits <= 1 else min(8.0, 0.5 * 2.0 ** min(exits - 2, 8))


class Supervisor:
    """Runs programs, and restarts them when they exit.

    ``report`` is called with a line of text after each exit and each restart.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._children: dict[str, Child] = {}
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> Mapping[str, int]:
        """The process id of each program, by name; for a program that is not running, the id of its last process."""
        return {name: child.pid for name, child in self._children.items()}

    async def add(self, program: Program) -> None:
        """Start a program, wait until it is ready, and from then on restart it whenever it exits.

        Raises :class:`OperationalError` with the end of the program's log if this first start fails.
        """
        child = await self._start(program)
        await child.wait_until_ready(START_TIMEOUT_S)
        self._watchers.append(asyncio.create_task(self._restart_on_exit(child), name=f"supervise {program.name}"))

    async def stop(self, last: Collection[str]) -> None:
        """Stop all programs within 8 seconds.

        ``last`` contains the names of programs on which the others depend, and which are therefore stopped last.
        """
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for is_last, grace_s in ((False, GRACE_S), (True, LAST_GRACE_S)):
            children = (child for name, child in self._children.items() if (name in last) == is_last)
            await asyncio.gather(*(child.stop(grace_s) for child in children))

    async def _start(self, program: Program) -> Child:
        child = self._children[program.name] = await Child.start(program)
        return child

    async def _restart_on_exit(self, child: Child) -> None:
        now_s = asyncio.get_running_loop().time
        program, exits = child.program, 0
        while True:
            start_s = now_s()
            status = await child.wait_for_exit()
            exits = 1 if now_s() - start_s > _STABLE_AFTER_S else exits + 1
            self._report(f"{program.name} {describe_exit(status)}; restarting. Log: {program.log}")
            await asyncio.sleep(restart_delay_s(exits))
            try:
                child = await self._start(program)
                await child.wait_until_ready(START_TIMEOUT_S)
                self._report(f"{program.name} is back.")
            except OperationalError as error:
                self._report(str(error))
                await child.stop()
