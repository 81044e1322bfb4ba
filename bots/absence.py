"""What was said to our account while nobody was there, taken in before anything that is said now.

Servers keep such words in two places: as offline messages (XEP-0160), which they bring when we are back, and in the
account's archive (XEP-0313), which has to be asked, and which alone has what a session was brought that died. It is
asked from the moment on until which all was taken in for sure; what is in both, or was taken in before, is known by
its name.
"""

import asyncio
import contextlib
from typing import Final

import structlog

from bots.archive import past
from bots.each_session import EachSession
from bots.hearing import Hearing
from bots.incoming import CLOCKS_DIFFER_S, STALE_S
from bots.link import AskingLink
from bots.tasks import together
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store.heard import Heard

NOTE_EVERY_S: Final = 5.0
_RETRY_S: Final = 0.5
_WITHIN_S: Final = 120.0
"""For so long what is said now waits for what was said before."""
_log = structlog.get_logger()


class Absence:
    """One bot's. :meth:`run` drives it."""

    def __init__(self, heard: Heard, link: AskingLink, hearing: Hearing, clock: Clock) -> None:
        """Have ``hearing`` take in what ``link`` finds."""
        self._heard = heard
        self._link = link
        self._hearing = hearing
        self._clock = clock
        self._is_over = asyncio.Event()
        self._sessions = EachSession(link, self._end, _WITHIN_S)

    def started(self) -> None:
        """A session began, and with it what has to be taken in before what is said in it."""
        if self._link.is_account:
            self._is_over.clear()
            self._hearing.hold()
        else:  # its server keeps nothing for it
            self._is_over.set()
        self._sessions.started()

    async def run(self) -> None:
        """Take in, and note until when all is taken in, until cancelled."""
        await together(self._sessions.run(), self._note())

    async def _end(self) -> None:
        self._hearing.hold()
        try:
            await self._take_in()
            self._is_over.set()
        finally:
            self._hearing.release()

    async def _take_in(self) -> None:
        now_s = self._clock.wall_s()
        while True:
            try:
                until_s = await self._heard.listened(self._link.address)
                since_s = max(until_s - CLOCKS_DIFFER_S, now_s - STALE_S) if until_s else now_s
                count = await self._hearing.first(each.said async for each in past(self._link, since_s))
                await self._heard.listening(self._link.address, now_s)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            else:
                _log.info("what was said meanwhile is taken in", within_s=round(now_s - since_s), new=count)
                return

    async def _note(self) -> None:
        while True:
            await self._is_over.wait()
            await self._link.up.wait()
            if self._is_over.is_set() and self._hearing.has_taken_in_all():
                until_s = self._clock.wall_s() - self._link.silent_s()
                with contextlib.suppress(StoreUnavailable):  # then more is looked at again
                    await self._heard.listening(self._link.address, until_s)
            await asyncio.sleep(NOTE_EVERY_S)
