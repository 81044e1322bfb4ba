"""Answers people: one command at a time per person, many people in parallel.

Drives :mod:`bots.dialogue` against the store and sends what it says. An answer is written again
after a lost session, under the same id, until the server has it.
"""

import asyncio
from collections import deque
from typing import Final

import structlog

from bots import commands, stanzas
from bots.asking import Limits
from bots.dialogue import Dialogue, converse
from bots.exchange import (
    Failed,
    OnlyManagers,
    Question,
    Reply,
    TooFast,
)
from bots.house import House
from bots.ids import answer_id
from bots.length import LONGEST_MESSAGE_BYTES, clip
from bots.link import Link, LinkLost, Said
from bots.paces import may_command
from bots.pointing import pointed, reacted
from bots.replies import others, text
from bots.replies.talking import broken, welcome, welcome_back
from bots.tasks import end
from bots.verbs import LEAVE
from bots.voice import voice
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store import Store
from service.store.keys import user_id

QUESTION_STANDS_S: Final = 600.0
"""After this long a question is forgotten, so that a stray "yes" does nothing."""

_MOST_WAITING = 100
_MOST_WAITING_OF_ONE = 20
"""Of one occupant of a room, which all of it share."""
_MOST_REMEMBERED = 10_000
"""People without unread commands of whom we remember a question, or that they ask too fast."""
_log = structlog.get_logger()


class _Person:
    """One person's unread commands, and the question they were asked last."""

    def __init__(self) -> None:
        self.unread: deque[Said] = deque(maxlen=_MOST_WAITING)
        self.asked: Question | None = None
        self.asked_s = 0.0
        self.told_too_fast: set[str] = set()
        self.more: tuple[str, ...] = ()
        self.language = ""


class Desk:
    """Takes what people say; :meth:`hear` never waits."""

    def __init__(self, store: Store, link: Link, house: House, clock: Clock, limits: Limits) -> None:
        """Answer through ``link`` what ``house`` has done."""
        self._house = house
        self._store = store
        self._link = link
        self._clock = clock
        self._limits = limits
        self._people: dict[str, _Person] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}

    def hear(self, said: Said) -> None:
        """Queue what a person said; of more than a hundred unread commands the oldest are dropped.

        Of one of many in a room, whose commands stand in one line, the newest are, and sooner.
        """
        whose = said.jid if said.jid not in self._link.rooms or said.aloud else said.sender
        unread = self._people.setdefault(whose, _Person()).unread
        if said.aloud and sum(each.occupant == said.occupant for each in unread) >= _MOST_WAITING_OF_ONE:
            return
        unread.append(said)
        if whose not in self._serving:
            self._serving[whose] = asyncio.create_task(self._serve(whose))

    async def close(self) -> None:
        """Stop answering."""
        for task in tuple(self._serving.values()):
            await end(task)

    async def _serve(self, jid: str) -> None:
        person = self._people[jid]
        try:
            while person.unread:
                await self._answer(person, person.unread.popleft())
        finally:
            del self._serving[jid], self._people[jid]
            if person.asked is not None or person.told_too_fast:
                self._remember(jid, person)

    def _remember(self, jid: str, person: _Person) -> None:
        """Keep somebody; forget whom we kept longest, if there are too many."""
        self._people[jid] = person
        if len(self._people) > _MOST_REMEMBERED:
            idle = (other for other in self._people if other not in self._serving)
            del self._people[next(idle)]

    async def _answer(self, person: _Person, said: Said) -> None:
        """Answer one command; a bug in one answer is logged and stays that person's."""
        if said.wants_receipt:
            self._link.hint(stanzas.receipt(self._link.address, said.sender, said.id))
        try:
            words = await self._words(person, said)
        except StoreUnavailable as error:
            words = text(Failed(error, ""), self._clock.wall_s(), person.language or said.language)
        except Exception:  # noqa: BLE001 - whatever it is, it concerns this person's command only
            _log.exception("a command failed", jid=said.jid)
            words = broken(voice(person.language or said.language))
        more, person.more = person.more, ()
        for each in (words, *more):
            if each:
                await self._say(said, each)

    async def _words(self, person: _Person, said: Said) -> str:
        """Return what to say, "" for nothing."""
        per_minute = self._limits.commands_per_minute
        if not await may_command(self._store.users, said, per_minute):
            if said.occupant in person.told_too_fast or len(person.told_too_fast) >= _MOST_WAITING:
                return ""
            person.told_too_fast.add(said.occupant)
            return text(TooFast(per_minute), self._clock.wall_s(), person.language or said.language)
        person.told_too_fast.discard(said.occupant)
        # A room is spoken to as its owners and admins speak, not as whoever spoke last.
        known = await self._house.greet(said.jid, said.language if said.may_change else "")
        if known.suspended:
            return ""
        person.language = known.habits.speaks
        greeting = "" if known.welcomed else f"{welcome(voice(person.language))}\n\n"
        if known.unreachable:
            greeting = f"{welcome_back(voice(person.language))}\n\n"
        reply = await self._converse(person, said, self._limits.of(known.most_subscriptions))
        return clip(greeting + text(reply, self._clock.wall_s(), person.language), LONGEST_MESSAGE_BYTES)

    async def _converse(self, person: _Person, said: Said, limits: Limits) -> Reply:
        stands = self._clock.monotonic_s() - person.asked_s < QUESTION_STANDS_S
        dialogue = self._dialogue(said, person.asked if stands else None, limits)

        def at_work() -> None:
            if not said.aloud:
                self._link.hint(stanzas.composing(self._link.address, said.sender))

        reply = await self._house.conduct(said.jid, dialogue, at_work)
        person.more = others(reply)
        person.asked = reply if isinstance(reply, Question) else None
        person.asked_s = self._clock.monotonic_s()
        return reply

    def _dialogue(self, said: Said, asked: Question | None, limits: Limits) -> Dialogue:
        if not said.may_change:
            return _guarded(said.text, limits)
        if said.reacted:
            return reacted(said.text, said.points_at, limits)
        if said.points_at:
            return pointed(said.text, said.points_at, asked, limits)
        return converse(commands.parse(said.text), asked, limits)

    async def _say(self, said: Said, words: str) -> None:
        stanza = self._answer_to(said, words)
        while True:
            await self._link.up.wait()
            try:
                await self._link.send([stanza])
            except LinkLost:
                continue
            return

    def _answer_to(self, said: Said, words: str) -> str:
        address, ident = self._link.address, answer_id(user_id(said.jid))
        if said.aloud:
            nick = said.sender.partition("/")[2]
            return stanzas.message(address, said.jid, ident, stanzas.payload(f"{nick}: {words}"), kind="groupchat")
        content = stanzas.payload(words) + stanzas.REQUEST + stanzas.ACTIVE
        return stanzas.message(address, said.sender, ident, content, said.thread)


def _guarded(text: str, limits: Limits) -> Dialogue:
    """Carry out only what changes nothing."""
    command = commands.parse(text)
    if not isinstance(command, commands.HARMLESS) or text.strip().lower() in LEAVE:
        return OnlyManagers()
    return (yield from converse(command, None, limits))
