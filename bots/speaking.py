"""Says the answers: many people's at once, each noted before it is sent and struck off when the server has it.

So whoever takes over from a bot that died says the same answer, under the same id, and does not find another.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from bots.charges import Charges
from bots.link import Link, LinkLost
from bots.tasks import together, unbroken
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.heard import Heard, Place

AT_ONCE: Final = 200
_RETRY_S = 0.5


class Answer(msgspec.Struct, frozen=True):
    """The stanzas that answer something; where that stands in what the person said, "" if it stands nowhere.

    ``address`` is whom the person wrote to.
    """

    uid: UserId
    place: Place
    address: str
    stanzas: tuple[str, ...]
    noted: bool = False


_Waiting = tuple[Answer, asyncio.Future[None]]


class Speaking:
    """One bot's voice. :meth:`run` drives it."""

    def __init__(self, heard: Heard, link: Link, charges: Charges) -> None:
        """Write to ``link`` what is said as its address, have others write the rest.

        What stands in the store is said only to whom ``charges`` has.
        """
        self._charges = charges
        self._heard = heard
        self._link = link
        self._waiting: list[_Waiting] = []
        self._stirred = asyncio.Event()
        self._said: list[_Waiting] = []
        self._finished = asyncio.Event()

    async def say(self, answer: Answer) -> None:
        """Return when the server has it, and nobody will say it again."""
        ended = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, ended))
        self._stirred.set()
        await ended

    async def run(self) -> None:
        """Send until cancelled; then strike off what was on its way to the server, or it would be said again."""
        try:
            await together(self._finish(), self._send())
        finally:
            with contextlib.suppress(StoreUnavailable):
                await unbroken(self._strike_off())

    async def _send(self) -> None:
        while True:
            await self._stirred.wait()
            await self._link.up.wait()
            some, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            if not self._waiting:
                self._stirred.clear()
            await unbroken(self._utter(self._sayable(some)))

    async def _utter(self, sayable: list[_Waiting]) -> None:
        answers = [answer for answer, _ in sayable]
        try:
            await self._note(answers)
            await self._write(answers)
        except LinkLost:
            self._waiting = sayable + self._waiting
            self._stirred.set()
        else:
            self._said += sayable
            self._finished.set()

    def _sayable(self, some: list[_Waiting]) -> list[_Waiting]:
        """Return what is ours to say; nobody waits any more for what is not, and it waits while we cannot be sure."""
        sayable: list[_Waiting] = []
        unsure: list[_Waiting] = []
        for answer, ended in some:
            if not answer.place:
                sayable.append((answer, ended))
            elif not self._charges.holds(answer.uid):
                _end(ended)
            else:
                (sayable if self._charges.are_certain() else unsure).append((answer, ended))
        if unsure:
            self._waiting = unsure + self._waiting
            asyncio.get_running_loop().call_later(_RETRY_S, self._stirred.set)
        return sayable

    async def _note(self, answers: Sequence[Answer]) -> None:
        new = [(each.uid, each.place, each.stanzas) for each in answers if each.place and not each.noted]
        with contextlib.suppress(StoreUnavailable):  # then whoever took over now would look for the answer once more
            await self._heard.answered(new)

    async def _write(self, answers: Sequence[Answer]) -> None:
        """Return when all is said. Raises LinkLost."""
        ours = [stanza for each in answers if each.address == self._link.address for stanza in each.stanzas]
        if ours:
            await self._link.send(ours)
        for each in answers:
            if each.address != self._link.address:
                await self._pass_on(each)

    async def _pass_on(self, answer: Answer) -> None:
        while True:
            try:
                await self._heard.say(answer.address, answer.stanzas)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _finish(self) -> None:
        """Strike off, however long Redis is away: it would be said twice otherwise."""
        while True:
            await self._finished.wait()
            self._finished.clear()
            try:
                await unbroken(self._strike_off())
            except StoreUnavailable:
                self._finished.set()
                await asyncio.sleep(_RETRY_S)

    async def _strike_off(self) -> None:
        some = list(self._said)
        await self._heard.done([(each.uid, each.place) for each, _ in some if each.place])
        del self._said[: len(some)]
        for _, ended in some:
            _end(ended)


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
