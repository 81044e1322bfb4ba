"""What is done once in each session of an account."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bots.link import AskingLink, LinkLost

_WITHIN_S: Final = 30.0


class EachSession:
    """Does it when a session has begun, if there is an account; what is not answered in time waits for the next."""

    def __init__(self, link: AskingLink, do: Callable[[], Awaitable[None]], within_s: float = _WITHIN_S) -> None:
        """Have ``do`` talk to the server through ``link``; that may take ``within_s``."""
        self._within_s = within_s
        self._link = link
        self._do = do
        self._began = asyncio.Event()

    def started(self) -> None:
        """A session began."""
        self._began.set()

    async def run(self) -> None:
        """Do it until cancelled."""
        while True:
            await self._began.wait()
            self._began.clear()
            if self._link.is_account:
                try:
                    async with asyncio.timeout(self._within_s):
                        await self._do()
                except (TimeoutError, LinkLost):
                    continue
