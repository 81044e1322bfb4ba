"""Ad-hoc commands (XEP-0050): forms instead of talk, over the same dialogues.

An errand is one run of one command; its steps may come minutes apart. At most so many are remembered, of each person
and of all, the oldest are forgotten first, and whoever comes back to a forgotten one is told so (``session-expired``).
Forms are opened no more often than commands are given, and each command that a form stands for is charged.
"""

import asyncio
import contextlib
import secrets
from collections import Counter as Counts
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Final

import msgspec
import structlog

from bots import adhoc, commands, forms, introduction, stanzas
from bots.dialogue import answer
from bots.house import House, RequestHandler
from bots.link import Link, Ordered
from bots.paces import may_command, may_open_form
from bots.replies.parts import Question, Refusal, Reply
from bots.replies.talking import Failed, NotAdmitted, TooFast, broken
from bots.tasks import end
from bots.voice import Voice, voice
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store import Store

ERRAND_STANDS_S: Final = 600.0
MOST_ERRANDS: Final = 2_000
MOST_ERRANDS_OF_ONE: Final = 5
MOST_AT_WORK: Final = 200
"""Steps under way; more are refused until some are done."""
MOST_AT_WORK_OF_ONE: Final = 5
_MOST_LINES: Final = 300
_ACTIONS: Final = ("execute", "next", "complete")
_log = structlog.get_logger()


class _Errand(msgspec.Struct):
    """One run of a command: whose, since when it waits, with which form, and which question that asks."""

    jid: str
    verb: str
    form: forms.Form
    asked: Question | None
    since_s: float


class Counter:
    """Takes what people's software orders; :meth:`hear` never waits."""

    def __init__(self, store: Store, link: Link, house: House, clock: Clock) -> None:
        """Answer through ``link`` what ``house`` has done."""
        self._store = store
        self._link = link
        self._house = house
        self._clock = clock
        self._errands: OrderedDict[str, _Errand] = OrderedDict()
        self._at_work: set[asyncio.Task[None]] = set()
        self._at_work_of: Counts[str] = Counts()

    def hear(self, ordered: Ordered) -> None:
        """Begin an errand, or go on with one."""
        if ordered.jid in self._link.rooms:  # nobody in a room acts for it behind its back
            self._refuse(ordered, "auth", "forbidden")
            return
        if len(self._at_work) >= MOST_AT_WORK or self._at_work_of[ordered.jid] >= MOST_AT_WORK_OF_ONE:
            self.refuse(ordered)
            return
        self._at_work_of[ordered.jid] += 1
        self._begin_task(self._serve(ordered))

    def refuse(self, ordered: Ordered) -> None:
        """Answer that there is too much to do."""
        self._refuse(ordered, "wait", "resource-constraint")

    async def close(self) -> None:
        """Stop answering."""
        await end(*tuple(self._at_work))

    def _begin_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _serve(self, ordered: Ordered) -> None:
        """Answer one step; a bug in it is logged and stays that person's."""
        speaker = voice(ordered.language)
        try:
            chosen = (await self._store.users.get(ordered.jid)).habits.language
            speaker = voice(chosen or ordered.language)
            await self._step(ordered, speaker)
        except StoreUnavailable as error:
            self._complete(ordered, ordered.session, Failed(error, "").text(speaker.language), wrong=True)
        except Exception:  # noqa: BLE001 - whatever it is, it concerns this person's errand only
            _log.exception("an ad-hoc command failed", jid=ordered.jid, node=ordered.node)
            self._complete(ordered, ordered.session, broken(speaker), wrong=True)
        finally:
            self._at_work_of[ordered.jid] -= 1
            if not self._at_work_of[ordered.jid]:
                del self._at_work_of[ordered.jid]

    async def _step(self, ordered: Ordered, speaker: Voice) -> None:
        if ordered.node not in commands.VERBS:
            self._refuse(ordered, "cancel", "item-not-found")
        elif not ordered.session and ordered.action != "cancel":
            await self._begin(ordered, speaker)
        elif (errand := self._taken(ordered)) is None:
            self._refuse(ordered, "cancel", "not-allowed", "session-expired")
        elif ordered.action == "cancel":
            self._answer(ordered, adhoc.canceled(ordered.node, ordered.session))
        elif ordered.action not in _ACTIONS:
            self._errands[ordered.session] = errand
            self._refuse(ordered, "modify", "bad-request", "bad-action")
        else:
            await self._go_on(ordered, errand, speaker)

    def _taken(self, ordered: Ordered) -> _Errand | None:
        """Return the errand, no longer remembered, if it is this person's and not too old."""
        errand = self._errands.get(ordered.session)
        if errand is None or errand.jid != ordered.jid or errand.verb != ordered.node:
            return None
        del self._errands[ordered.session]
        return errand if self._clock.monotonic_s() - errand.since_s < ERRAND_STANDS_S else None

    async def _begin(self, ordered: Ordered, speaker: Voice) -> None:
        refused = await self._refused_form(ordered.jid)
        if refused is not None:
            self._complete(ordered, secrets.token_hex(8), refused.text(speaker.language), wrong=True)
            return
        form = await forms.opening(ordered.node, speaker, RequestHandler(self._house, ordered.jid))
        errand = _Errand(ordered.jid, ordered.node, form, None, self._clock.monotonic_s())
        if form.fields:
            self._keep(ordered, secrets.token_hex(8), errand)
        else:
            await self._go_on(ordered, errand, speaker)

    async def _refused_form(self, jid: str) -> Reply | None:
        """Return why somebody is shown no form; None if they are."""
        per_minute = self._house.limits.commands_per_minute
        if not await may_open_form(self._store.users, jid, per_minute):
            return TooFast(per_minute)
        if (await self._store.users.get(jid)).suspended or not await self._house.door.admits(jid):
            return NotAdmitted()
        return None

    async def _go_on(self, ordered: Ordered, errand: _Errand, speaker: Voice) -> None:
        """Carry out what was filled in, and answer with how it went, the question that it raised, or what is wrong."""
        session = ordered.session or secrets.token_hex(8)
        if errand.asked is None:
            said = forms.lines(errand.verb, ordered.values)[:_MOST_LINES]
        else:
            said = [forms.answer(errand.asked, ordered.values)]
        replies = await self._replies(ordered.jid, said, errand.asked)
        words = "\n".join(
            said for reply in replies for said in (reply.text(speaker.language), *reply.others(speaker.language))
        )
        last = replies[-1]
        wrong = any(isinstance(reply, Refusal) for reply in replies)
        done = len(replies) - 1 if isinstance(last, TooFast) else 0  # what is left can be tried again
        if isinstance(last, Question):
            form = forms.question(last, words, speaker)
            self._keep(ordered, session, _Errand(errand.jid, errand.verb, form, last, self._clock.monotonic_s()))
        elif wrong and errand.asked is None and errand.form.fields:
            form = forms.again(errand.form, forms.left(errand.verb, ordered.values, done), words)
            renewed = _Errand(errand.jid, errand.verb, form, None, self._clock.monotonic_s())
            self._keep(ordered, session, renewed, words)
        else:
            self._complete(ordered, session, words, wrong=wrong)

    async def _replies(self, jid: str, said: list[str], asked: Question | None) -> list[Reply]:
        """Return the reply to each line, as far as the person may give so many commands now."""
        per_minute = self._house.limits.commands_per_minute
        known = await self._store.users.get(jid)
        requests = RequestHandler(self._house, jid, known.most_subscriptions)
        replies: list[Reply] = []
        for line in said:
            if not await may_command(self._store.users, jid, per_minute):
                return [*replies, TooFast(per_minute)]
            if known.suspended:
                return [NotAdmitted()]
            replies.append(await answer(requests, line, asked))
        return replies

    def _keep(self, ordered: Ordered, session: str, errand: _Errand, note: str = "") -> None:
        self._errands[session] = errand
        self._forget_old(ordered.jid)
        self._answer(ordered, adhoc.going_on(ordered.node, session, errand.form, note))

    def _forget_old(self, jid: str) -> None:
        """Forget errands that are too old, and the oldest of a person, and of all, who have too many."""
        now_s = self._clock.monotonic_s()
        own = [session for session, errand in self._errands.items() if errand.jid == jid]
        for session in own[:-MOST_ERRANDS_OF_ONE]:
            del self._errands[session]
        while self._errands:
            session, oldest = next(iter(self._errands.items()))
            if len(self._errands) <= MOST_ERRANDS and now_s - oldest.since_s < ERRAND_STANDS_S:
                break
            del self._errands[session]

    def _complete(self, ordered: Ordered, session: str, words: str, *, wrong: bool = False) -> None:
        self._answer(ordered, adhoc.completed(ordered.node, session, words, wrong=wrong))

    def _answer(self, ordered: Ordered, payload: str) -> None:
        self._write(ordered, stanzas.result(self._address(ordered), ordered.sender, ordered.id, payload))

    def _refuse(self, ordered: Ordered, kind: str, condition: str, detail: str = "") -> None:
        told = f"<{detail} xmlns='{introduction.COMMANDS}'/>" if detail else ""
        error = (kind, condition)
        self._write(ordered, stanzas.refusal(self._address(ordered), ordered.sender, ordered.id, error, told))

    def _address(self, ordered: Ordered) -> str:
        return stanzas.bare(ordered.voice) if ordered.voice else self._link.address

    def _write(self, ordered: Ordered, stanza: str) -> None:
        if ordered.voice in ("", self._link.voice):
            self._link.hint(stanza)
        else:
            self._begin_task(self._pass_back(ordered.voice, stanza))

    async def _pass_back(self, voice: str, stanza: str) -> None:
        with contextlib.suppress(StoreUnavailable):  # their software asks again
            await self._store.heard.say(voice, [stanza])
