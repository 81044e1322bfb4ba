"""Keeps programs running: what dies is started again, at once at first, then with growing pauses."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from service.errors import OperationalError
from service.stack.child import Child, Program, ending

_START_TIMEOUT_S = 30.0
_STEADY_S = 20.0
"""A program that ran this long is healthy: its next death is a first one."""
_GRACE_S = 5.0
_LAST_GRACE_S = 3.0


def pause_s(deaths: int) -> float:
    """Return how long to wait before the restart after so many deaths in a row: 0, 0.5, 1, 2, 4, 8, 8, … s."""
    return 0.0 if deaths <= 1 else min(8.0, 0.5 * 2.0 ** min(deaths - 2, 8))


class Supervisor:
    """The running programs, by name. ``told`` hears a line for each death and each return."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._children: dict[str, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> Mapping[str, int]:
        """Each program's process id; a dead one's until it is started again."""
        return {name: child.pid for name, child in self._children.items()}

    async def add(self, program: Program) -> None:
        """Start a program, wait until it answers, and keep it running from then on.

        Raises :class:`OperationalError` with the end of its log when this first start fails.
        """
        child = await self._start(program)
        await child.ready(_START_TIMEOUT_S)
        self._keepers.append(asyncio.create_task(self._keep(child), name=f"keep {program.name}"))

    async def stop(self, last: Collection[str]) -> None:
        """End everything within 8 s; what is named ``last`` only after the others, which need it."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await _stop((child for name, child in self._children.items() if name not in last), _GRACE_S)
        await _stop((child for name, child in self._children.items() if name in last), _LAST_GRACE_S)

    async def _start(self, program: Program) -> Child:
        child = self._children[program.name] = await Child.start(program)
        return child

    async def _keep(self, child: Child) -> None:
        now_s = asyncio.get_running_loop().time
        program, deaths = child.program, 0
        while True:
            since_s = now_s()
            status = await child.exited()
            deaths = 1 if now_s() - since_s > _STEADY_S else deaths + 1
            self._told(f"{program.name} {ending(status)}; starting it again. Its log: {program.log}")
            await asyncio.sleep(pause_s(deaths))
            try:
                child = await self._start(program)
                await child.ready(_START_TIMEOUT_S)
                self._told(f"{program.name} is back.")
            except OperationalError as error:
                self._told(str(error))
                await child.stop()


async def _stop(children: Iterable[Child], grace_s: float) -> None:
    await asyncio.gather(*(child.stop(grace_s) for child in children))
