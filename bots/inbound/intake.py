"""Durable intake of what people send to a bot.

A message is stored before anybody answers it (:mod:`service.store.delivery.inbound_log`), under the name that its
server gave it. So no failure of a process loses it, and of several processes of one account that receive the same
message one answers.

What was sent while no process was connected is kept by the account's server: as offline messages (XEP-0160), which
arrive with the next session, and in the archive (XEP-0313), which also has what a failed process received and did not
store. So each session of an account begins by reading the archive from the moment up to which everything was stored,
and only then stores what arrives in the session.
"""

import asyncio
import contextlib
import enum
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import structlog

from bots.cluster.assigned_users import AssignedUsers
from bots.sessions.adhoc_session import Counter as Orders
from bots.sessions.chat_session import Desk
from bots.tasks import run_until_one_ends
from bots.xmpp import message_parser, stanzas
from bots.xmpp.archive import read_archive
from bots.xmpp.events import AdhocCommandReceived, MessageReceived
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.message_parser import MAX_AGE_S, MAX_CLOCK_SKEW_S
from service.clock import Clock
from service.errors import StoreUnavailable
from service.net.sites import site_of_jid
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import MAX_UNANSWERED, BotNotice, InboundLog, InboundMessage

AT_ONCE: Final = 500
NOTE_EVERY_S: Final = 5.0
_MOST_WAITING: Final = 10_000
_MOST_WAITING_OF_A_SITE: Final = 5_000
"""Of people whose servers share a registrable domain, so that nobody fills the queue with addresses they invent."""
_CATCH_UP_WITHIN_S: Final = 120.0
"""For so long messages of a new session wait for the archive."""
_SWEEP_EVERY_S: Final = 10.0
_RETRY_S: Final = 0.5
_log = structlog.get_logger()


class Phase(enum.Enum):
    """What of all messages to our address is stored."""

    BEHIND = enum.auto()
    """A session of an account began: the archive has to be read before anything else is stored."""
    CATCHING_UP = enum.auto()
    """The archive is being read."""
    COMPLETE = enum.auto()
    """All that was sent before is stored."""
    INCOMPLETE = enum.auto()
    """There was no session yet, or the archive could not be read: the next session tries again."""


class WaitingMessages:
    """Messages that wait to be stored, within bounds per person, per site and in all."""

    def __init__(self) -> None:
        """Begin empty."""
        self._messages: deque[MessageReceived] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._messages)

    def put(self, said: MessageReceived) -> None:
        """Add a message; drop it if a bound is reached."""
        bounds = dict(zip(_counted(said), (MAX_UNANSWERED, _MOST_WAITING_OF_A_SITE), strict=True))
        if len(self) < _MOST_WAITING and all(self._counts[key] < most for key, most in bounds.items()):
            self._messages.append(said)
            self._counts.update(bounds.keys())

    def take(self, most: int) -> list[MessageReceived]:
        """Remove and return the oldest messages."""
        taken = [self._messages.popleft() for _ in range(min(most, len(self)))]
        self._counts.subtract(key for said in taken for key in _counted(said))
        self._counts = +self._counts
        return taken


def _counted(said: MessageReceived) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("person", said.jid), ("site", site_of_jid(said.jid))


class Intake:
    """The intake of one bot. :meth:`run` drives it; the other methods that are not coroutines never wait."""

    def __init__(
        self,
        heard: InboundLog,
        link: XmppClient,
        assigned_users: AssignedUsers,
        *,
        desk: Desk,
        orders: Orders,
        clock: Clock,
    ) -> None:
        """Have ``desk`` and ``orders`` answer the people whom ``assigned_users`` has."""
        self._heard = heard
        self._link = link
        self._assigned_users = assigned_users
        self._desk = desk
        self._orders = orders
        self._clock = clock
        self._phase = Phase.INCOMPLETE
        self._waiting = WaitingMessages()
        self._has_work = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held by whoever stores messages, so that what was sent first is stored first."""
        self._gained = asyncio.Event()
        self._gained.set()
        self._noted_s = -NOTE_EVERY_S

    async def run(self) -> None:
        """Take in messages until cancelled."""
        await run_until_one_ends(
            self._store_messages(), self._follow_notices(), self._sweep(), self._write_for_others()
        )

    def started(self) -> None:
        """A session began that continues no earlier one. The server of a component keeps nothing for it."""
        self._phase = Phase.BEHIND if self._link.is_account else Phase.COMPLETE
        self._has_work.set()

    def on_message(self, said: MessageReceived) -> None:
        """A person wrote to us. Occupants of rooms who write privately are handled by :mod:`bots.rooms.room_client`."""
        if said.is_private:
            return
        if message_parser.is_too_old(said, self._clock.wall_s()):
            _log.info("said too long ago", jid=said.jid)
            return
        self._waiting.put(said)
        self._has_work.set()

    def gained(self) -> None:
        """There are more people whom we serve."""
        self._gained.set()

    async def store_earlier(self, pages: AsyncIterator[Sequence[MessageReceived]]) -> int:
        """Store what was sent earlier, before what is sent meanwhile; return how many messages were new.

        Raises StoreUnavailable, and what ``pages`` raises.
        """
        now_s, new = self._clock.wall_s(), 0
        async with self._turn:
            async for page in pages:
                new += await self._put(
                    [one for one in page if not (one.is_private or message_parser.is_too_old(one, now_s))]
                )
        return new

    # What is sent to us.

    async def _store_messages(self) -> None:
        """Store what waits, after what the archive has; while Redis is away, answer messages from memory."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NOTE_EVERY_S):
                    await self._has_work.wait()
            self._has_work.clear()
            if self._phase is Phase.BEHIND:
                await self._catch_up()
            while self._waiting and self._phase is not Phase.BEHIND:
                async with self._turn:
                    said = self._waiting.take(AT_ONCE)
                    try:
                        await self._put(said)
                    except StoreUnavailable as error:
                        _log.warning("nothing can be kept of what people say", reason=str(error), sentences=len(said))
                        for each in said:
                            if self._assigned_users.includes(user_id(each.jid)):
                                self._desk.hear(each)
            await self._note_progress()

    async def _catch_up(self) -> None:
        """Store what the archive has; a session that begins meanwhile starts over."""
        self._phase, reached = Phase.CATCHING_UP, Phase.INCOMPLETE
        with contextlib.suppress(TimeoutError, XmppSessionLost):
            async with asyncio.timeout(_CATCH_UP_WITHIN_S):
                await self._read_archive()
                reached = Phase.COMPLETE
        if self._phase is Phase.CATCHING_UP:
            self._phase = reached

    async def _read_archive(self) -> None:
        now_s = self._clock.wall_s()
        while True:
            try:
                until_s = await self._heard.caught_up_until_s(self._link.address)
                since_s = max(until_s - MAX_CLOCK_SKEW_S, now_s - MAX_AGE_S) if until_s else now_s
                count = await self.store_earlier(page.messages async for page in read_archive(self._link, since_s))
                await self._heard.record_caught_up(self._link.address, now_s)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            else:
                _log.info("what was said meanwhile is taken in", within_s=round(now_s - since_s), new=count)
                return

    async def _put(self, said: Sequence[MessageReceived]) -> int:
        """Store messages, have their people answered by whoever serves them, and return how many were new."""
        address, now_s, encode = self._link.address, self._clock.wall_s(), msgspec.msgpack.encode
        stored = await self._heard.add(
            [
                InboundMessage(
                    one.jid, one.dedup_key, encode(one), address, message_parser.duplicates_since_s(one, now_s)
                )
                for one in said
            ]
        )
        new = [each for each, is_new in zip(said, stored, strict=True) if is_new]
        for each in new:
            if each.wants_receipt:
                self._link.send_unconfirmed(stanzas.receipt(address, each.sender, each.id))
            if each.wants_marker:
                self._link.send_unconfirmed(stanzas.displayed_marker(address, each.sender, each.id, each.thread))
        ours = await self._assigned_users.select(dict.fromkeys(user_id(each.jid) for each in said))
        self._desk.read(await self._heard.read_unanswered(ours))
        await self._heard.notify([BotNotice(uid) for uid in {user_id(each.jid) for each in new}.difference(ours)])
        return len(new)

    async def _note_progress(self) -> None:
        """Note now and then up to when everything is stored."""
        now_s = self._clock.monotonic_s()
        is_complete = self._phase is Phase.COMPLETE and not self._waiting and not self._turn.locked()
        if is_complete and self._link.connected.is_set() and now_s - self._noted_s >= NOTE_EVERY_S:
            self._noted_s = now_s
            until_s = self._clock.wall_s() - self._link.idle_s()
            with contextlib.suppress(StoreUnavailable):  # then more of the archive is read again
                await self._heard.record_caught_up(self._link.address, until_s)

    # What waits for us in the store.

    async def _follow_notices(self) -> None:
        """Answer our people whose messages and ad-hoc commands other bots received."""
        after = ""
        while True:
            try:
                after = after or await self._heard.newest_notice_id()
                notices = await self._heard.read_notices(after)
                ours = set(await self._assigned_users.select({each.uid for each in notices.values()}))
                mine = {ident: each for ident, each in notices.items() if each.uid in ours}
                self._desk.read(
                    await self._heard.read_unanswered({each.uid for each in mine.values() if not each.adhoc_command})
                )
                after = next(reversed(notices), after)
                for each in mine.values():
                    if each.adhoc_command:
                        ordered = msgspec.msgpack.decode(each.adhoc_command, type=AdhocCommandReceived)
                        self._orders.hear(msgspec.structs.replace(ordered, receiver=each.voice))
                await self._heard.remove_notices(list(mine))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)

    async def _sweep(self) -> None:
        """Answer all our people of whom messages wait: when there are more whom we serve, and now and then."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_EVERY_S):
                    await self._gained.wait()
            self._gained.clear()
            try:
                ours = await self._assigned_users.select(await self._heard.unanswered_users())
                self._desk.read(await self._heard.read_unanswered(ours))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                self._gained.set()

    async def _write_for_others(self) -> None:
        """Write what other bots have us write."""
        while True:
            try:
                await self._link.connected.wait()
                voice = self._link.session_jid
                found = await self._heard.read_stanzas(voice)
                if found:
                    await self._link.send(list(found.values()))
                    await self._heard.remove_stanzas(voice, list(found))
            except (StoreUnavailable, XmppSessionLost):
                await asyncio.sleep(_RETRY_S)
