"""Answers people: one command at a time per person, many people in parallel.

Drives :mod:`bots.dialogue` against the store; :mod:`bots.speaking` sends what it says. An answer is written again
after a lost session, or by whoever takes over, under the same id, until the server has it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from bots import commands, stanzas
from bots.asking import Limits
from bots.charges import Charges
from bots.dialogue import Dialogue, converse
from bots.exchange import (
    NO_COMMAND,
    NOT_UNDERSTOOD,
    ExportedAsFile,
    Failed,
    Greeted,
    KeepsQuiet,
    OnlyManagers,
    Question,
    Reply,
    TooFast,
)
from bots.house import House
from bots.ids import answer_id, fresh_id
from bots.length import LONGEST_MESSAGE_BYTES, clip
from bots.link import Link, Said
from bots.paces import counters, exceeded_limit
from bots.pointing import pointed, reacted
from bots.replies import others, text
from bots.replies.talking import broken, welcome, welcome_back
from bots.speaking import Answer, Speaking
from bots.tasks import end
from bots.verbs import LEAVE
from bots.visits import quoted
from bots.voice import voice
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store import Store
from service.store.heard import Place, Unanswered
from service.store.keys import user_id
from service.store.users import UserState

QUESTION_STANDS_S: Final = 600.0
"""After this long a question is forgotten, so that a stray "yes" does nothing."""

MOST_MISUNDERSTOOD: Final = 5
"""After so many messages in a row that say nothing to us, we are silent until one does: two bots that answer everything
would otherwise never end."""
SILENT_FOR_S: Final = 600.0
"""Unless nothing was said for so long."""

_MOST_WAITING = 100
_MOST_WAITING_OF_ONE = 20
"""Of one occupant of a room, which all of it share."""
_MOST_SERVED = 10_000
"""People at a time, if what they say stands nowhere."""
_MOST_REMEMBERED = 10_000
"""People without unread commands of whom we remember a question, or that they ask too fast."""
_NOWHERE = (0, 0)
_log = structlog.get_logger()


class _Task(msgspec.Struct, frozen=True):
    """Something that was said to ``address``; its place in the store, "" if it stands nowhere."""

    said: Said
    place: Place = ""
    address: str = ""
    answers: tuple[str, ...] = ()


class _Person:
    """One person's unread commands, and the question they were asked last."""

    def __init__(self) -> None:
        self.unread: deque[_Task] = deque(maxlen=_MOST_WAITING)
        self.asked: Question | None = None
        self.asked_s = 0.0
        self.told_too_fast: set[str] = set()
        """Which of the limits that they exceeded they were told of."""
        self.misunderstood: dict[str, tuple[int, float]] = {}
        """Of whom, by occupant of a room, how many messages in a row we did not understand, and when the last one."""
        self.more: tuple[str, ...] = ()
        """The contents of the messages that are to follow an answer."""
        self.language = ""


class Desk:
    """Takes what people say; :meth:`hear` never waits."""

    def __init__(
        self,
        store: Store,
        link: Link,
        house: House,
        *,
        speaking: Speaking,
        charges: Charges,
        clock: Clock,
        limits: Limits,
        invited: Callable[[Said, Place], None],
    ) -> None:
        """Have ``speaking`` say what ``house`` has done, to whom ``charges`` has; ``link`` says that we are at work.

        Of an invitation ``invited`` is told, and where it stands in the store, "" if it stands nowhere.
        """
        self._invited = invited
        self._speaking = speaking
        self._charges = charges
        self._house = house
        self._store = store
        self._link = link
        self._clock = clock
        self._limits = limits
        self._people: dict[str, _Person] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, tuple[int, int]] = {}  # of what each said and stands in the store, what we had last

    def hear(self, said: Said) -> None:
        """Queue what was said and stands nowhere; of more than a hundred unread commands the oldest are dropped.

        Of one of many in a room, whose commands stand in one line, the newest are, and sooner.
        """
        if said.invited is not None:
            self._invited(said, "")
            return
        whose = said.jid if said.jid not in self._link.rooms or said.aloud else said.sender
        waiting = self._people[whose].unread if said.aloud and whose in self._people else ()
        if sum(each.said.occupant == said.occupant for each in waiting) >= _MOST_WAITING_OF_ONE:
            return
        if whose not in self._serving and len(self._serving) >= _MOST_SERVED:
            return  # a room can have any number of nicks whisper to us
        self._queue(whose, _Task(said, address=self._link.address))

    def read(self, unanswered: Sequence[Unanswered]) -> None:
        """Queue what stands in the store, in order; not again what we had: it may have been read before it went."""
        for each in unanswered:
            said = msgspec.msgpack.decode(each.said, type=Said)
            latest, place = self._latest.get(said.jid, _NOWHERE), _order(each.place)
            if place > latest:
                self._latest[said.jid] = place
                if said.invited is not None:
                    self._invited(said, each.place)
                else:
                    self._queue(said.jid, _Task(said, each.place, each.address, each.answers))
        while len(self._latest) > _MOST_REMEMBERED:
            del self._latest[next(iter(self._latest))]

    async def finished(self) -> None:
        """Return when what was begun is answered, of those whom we have served but do not serve any more."""
        begun = [task for whose, task in self._serving.items() if not self._charges.holds(user_id(whose))]
        if begun:
            await asyncio.wait(begun)

    def _queue(self, whose: str, task: _Task) -> None:
        person = self._people.setdefault(whose, _Person())
        person.unread.append(task)
        if whose not in self._serving:
            self._serving[whose] = asyncio.create_task(self._serve(whose))

    async def close(self) -> None:
        """Stop answering."""
        await end(*tuple(self._serving.values()))

    async def _serve(self, whose: str) -> None:
        person = self._people[whose]
        try:
            while person.unread:
                task = person.unread.popleft()
                if not task.place or self._charges.holds(user_id(whose)):  # else whoever serves them now has read it
                    await self._answer(person, task)
                else:
                    self._latest.pop(whose, None)
        finally:
            del self._serving[whose], self._people[whose]
            if person.asked is not None or person.told_too_fast or person.misunderstood:
                self._remember(whose, person)

    def _remember(self, jid: str, person: _Person) -> None:
        """Keep somebody; forget whom we kept longest, if there are too many."""
        self._people[jid] = person
        if len(self._people) > _MOST_REMEMBERED:
            idle = (other for other in self._people if other not in self._serving)
            del self._people[next(idle)]

    async def _answer(self, person: _Person, task: _Task) -> None:
        """Answer one command, or say what it was going to be answered."""
        uid = user_id(task.said.jid)
        if (
            task.place and task.said.jid in self._link.rooms
        ):  # whispered in a room to a bot that died: not for all of it
            await self._speaking.say(Answer(uid, task.place, task.address, (), noted=True))
            return
        if task.answers:
            await self._speaking.say(Answer(uid, task.place, task.address, task.answers, noted=True))
            return
        words = self._payload(task.said, await self._reply(person, task))
        more, person.more = person.more, ()
        stanzas_ = tuple(self._stanza(task, each, count) for count, each in enumerate((words, *more)) if each)
        await self._speaking.say(Answer(uid, task.place, task.address, stanzas_))

    async def _reply(self, person: _Person, task: _Task) -> str:
        """Return the answer to one command; a bug in it is logged and stays that person's."""
        said = task.said
        try:
            if said.person and await self._store.users.suspended([said.person]):
                return ""
            return await self._words(person, said)
        except StoreUnavailable as error:
            if self._count_misunderstood(person, said) > MOST_MISUNDERSTOOD:
                return ""
            return self._text(Failed(error, ""), person.language or said.language)
        except Exception:  # noqa: BLE001 - whatever it is, it concerns this person's command only
            _log.exception("a command failed", jid=said.jid)
            if self._count_misunderstood(person, said) > MOST_MISUNDERSTOOD:
                return ""
            return broken(voice(person.language or said.language))

    async def _words(self, person: _Person, said: Said) -> str:
        """Return what to say, "" for nothing."""
        per_minute = self._limits.commands_per_minute
        exceeded = await exceeded_limit(self._store.users, said, per_minute)
        if exceeded:
            if exceeded in person.told_too_fast or len(person.told_too_fast) >= _MOST_WAITING:
                return ""
            person.told_too_fast.add(exceeded)
            return self._text(TooFast(per_minute), person.language or said.language)
        person.told_too_fast.difference_update(counters(said))
        # A room is spoken to as its owners and admins speak, not as whoever spoke last.
        known = await self._house.greet(said.jid, said.language if said.may_change else "")
        if known.suspended:
            return ""
        person.language = known.habits.speaks
        reply = await self._converse(person, said, self._limits.of(known.most_subscriptions))
        if not isinstance(reply, NO_COMMAND):
            person.misunderstood.pop(said.occupant, None)
            return worded(known, reply, self._clock.wall_s())
        count = self._count_misunderstood(person, said)
        if count > MOST_MISUNDERSTOOD:
            person.asked = None
            return ""
        if count == MOST_MISUNDERSTOOD and isinstance(reply, NOT_UNDERSTOOD):
            person.asked, reply = None, KeepsQuiet()
        return worded(known, reply, self._clock.wall_s())

    def _count_misunderstood(self, person: _Person, said: Said) -> int:
        """Count a message that led to nothing; return how many of them its sender has sent in a row."""
        now_s = self._clock.monotonic_s()
        count, last_s = person.misunderstood.pop(said.occupant, (0, now_s))
        count = count + 1 if now_s - last_s < SILENT_FOR_S else 1
        person.misunderstood[said.occupant] = count, now_s
        if len(person.misunderstood) > _MOST_WAITING:
            del person.misunderstood[next(iter(person.misunderstood))]
        return count

    def _text(self, reply: Reply, language: str) -> str:
        return text(reply, self._clock.wall_s(), language)

    async def _converse(self, person: _Person, said: Said, limits: Limits) -> Reply:
        stands = self._clock.monotonic_s() - person.asked_s < QUESTION_STANDS_S
        dialogue = self._dialogue(said, person.asked if stands else None, limits)

        def at_work() -> None:
            if not said.aloud:
                self._link.hint(stanzas.composing(self._link.address, said.sender))

        reply = await self._house.conduct(said.jid, dialogue, at_work)
        written = stanzas.file if isinstance(reply, ExportedAsFile) else stanzas.payload
        person.more = tuple(map(written, others(reply, person.language)))
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

    def _payload(self, said: Said, words: str) -> str:
        """Return the content of what is said first, "" for nothing; in a room it names whom it is for."""
        if not words:
            return ""
        return stanzas.payload(f"{quoted(said.sender.partition('/')[2])}: {words}" if said.aloud else words)

    def _stanza(self, task: _Task, content: str, count: int) -> str:
        said, uid = task.said, user_id(task.said.jid)
        ident = answer_id(uid, task.place, count) if task.place else fresh_id(uid)
        if said.aloud:
            return stanzas.message(task.address, said.jid, ident, content, kind="groupchat")
        content += stanzas.REQUEST + stanzas.ACTIVE
        return stanzas.message(task.address, said.sender, ident, content, said.thread)


def _order(place: Place) -> tuple[int, int]:
    at_ms, _, serial = place.partition("-")
    return int(at_ms), int(serial)


def worded(known: UserState, reply: Reply, now_s: float) -> str:
    """Return a reply's text for a person of whom this was known when they wrote; who is new, or back, is greeted."""
    language = known.habits.speaks
    greeting = "" if known.welcomed or isinstance(reply, Greeted) else f"{welcome(voice(language))}\n\n"
    if known.unreachable:
        greeting = f"{welcome_back(voice(language))}\n\n"
    return clip(greeting + text(reply, now_s, language), LONGEST_MESSAGE_BYTES)


def _guarded(text: str, limits: Limits) -> Dialogue:
    """Carry out only what changes nothing."""
    command = commands.parse(text)
    if not isinstance(command, commands.HARMLESS) or text.strip().lower() in LEAVE:
        return OnlyManagers()
    return (yield from converse(command, None, limits))
