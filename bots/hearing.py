"""Takes in what people say and their software orders, and sees to it that whoever serves them answers, once.

What is said is in the store before anybody answers it (:mod:`service.store.heard`); so no bot's death loses it, and of
two bots of one account that were brought the same words one answers. Orders are answered at once or not at all, as
their software waits.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import structlog

from bots import incoming, stanzas
from bots.charges import Charges
from bots.counter import MOST_AT_WORK_OF_ONE
from bots.counter import Counter as Orders
from bots.desk import Desk
from bots.link import Link, LinkLost, Ordered, Said
from bots.tasks import together
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.net.sites import site_of_jid
from service.store.heard import MOST_UNREAD, Heard, Order, Sentence
from service.store.keys import user_id

AT_ONCE: Final = 500
_MOST_WAITING: Final = 10_000
_MOST_WAITING_OF_A_SITE: Final = 5_000
"""Of people whose servers share a registrable domain, so that nobody fills the queue with addresses they invent."""
_LOOK_EVERY_S: Final = 10.0
_RETRY_S: Final = 0.5
_log = structlog.get_logger()


class Hearing:
    """One bot's ears. :meth:`run` drives them; the other methods never wait."""

    def __init__(self, heard: Heard, link: Link, charges: Charges, *, desk: Desk, orders: Orders, clock: Clock) -> None:
        """Have ``desk`` and ``orders`` answer whom ``charges`` has."""
        self._heard = heard
        self._link = link
        self._charges = charges
        self._desk = desk
        self._orders = orders
        self._clock = clock
        self._said: list[Said] = []
        self._ordered: deque[Ordered] = deque()
        self._waiting_orders: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._waiting_of_sites: Counter[str] = Counter()
        self._stirred = asyncio.Event()
        self._turn = asyncio.Lock()  # of those that take in what was said
        self._free = asyncio.Event()
        self._free.set()
        self._has_orders = asyncio.Event()
        self._gained = asyncio.Event()
        self._gained.set()

    async def run(self) -> None:
        """Hear until cancelled."""
        await together(self._take_in(), self._pass_on(), self._listen(), self._look(), self._say())

    def said(self, event: Said) -> None:
        """A person said something. Who says too much at once is not heard.

        Nor is an occupant of a room who spoke to us alone: where we are, :mod:`bots.rooms` hears them.
        """
        if event.is_private:
            return
        if incoming.is_stale(event, self._clock.wall_s()):
            _log.info("said too long ago", jid=event.jid)
        elif self._has_space(event.jid):
            self._waiting[event.jid] += 1
            self._waiting_of_sites[site_of_jid(event.jid)] += 1
            self._said.append(event)
            self._stirred.set()

    def _has_space(self, jid: str) -> bool:
        """Whether one message more of this person may wait."""
        return (
            self._waiting[jid] < MOST_UNREAD
            and self._waiting_of_sites[site_of_jid(jid)] < _MOST_WAITING_OF_A_SITE
            and len(self._said) < _MOST_WAITING
        )

    def ordered(self, event: Ordered) -> None:
        """A person's software ordered something."""
        waiting = self._waiting_orders[event.jid]
        if len(self._ordered) >= _MOST_WAITING or waiting >= MOST_AT_WORK_OF_ONE:
            self._orders.refuse(event)
            return
        self._waiting_orders[event.jid] = waiting + 1
        self._ordered.append(event)
        self._has_orders.set()

    def gained(self) -> None:
        """There are more whom we serve."""
        self._gained.set()

    def hold(self) -> None:
        """Take nothing of what is said from now on in before :meth:`release`, so that :meth:`first` comes first."""
        self._free.clear()

    def release(self) -> None:
        """Go on."""
        self._free.set()

    def has_taken_in_all(self) -> bool:
        """Whether all that was said is in the store."""
        return not self._said and not self._turn.locked()

    async def first(self, pages: AsyncIterator[Sequence[Said]]) -> int:
        """Take in what was said earlier, before what is said meanwhile; return how much of it was new.

        Raises StoreUnavailable, and what ``pages`` raises.
        """
        now_s, new = self._clock.wall_s(), 0
        async with self._turn:
            async for page in pages:
                new += await self._sort(
                    [each for each in page if not (each.is_private or incoming.is_stale(each, now_s))]
                )
        return new

    async def _take_in(self) -> None:
        while True:
            await self._stirred.wait()
            await self._free.wait()
            async with self._turn:
                said, self._said = self._said[:AT_ONCE], self._said[AT_ONCE:]
                if not self._said:
                    self._stirred.clear()
                self._waiting.subtract(each.jid for each in said)
                self._waiting_of_sites.subtract(site_of_jid(each.jid) for each in said)
                self._waiting, self._waiting_of_sites = +self._waiting, +self._waiting_of_sites
                try:
                    await self._sort(said)
                except StoreUnavailable as error:
                    _log.warning("nothing can be kept of what people say", reason=str(error), sentences=len(said))
                    for each in said:
                        if self._charges.holds(user_id(each.jid)):
                            self._desk.hear(each)

    async def _sort(self, said: Sequence[Said]) -> int:
        """Keep what was said; answer whom we serve, tell the others' bots, and return how much was new."""
        new = await self._heard.put([self._sentence(each) for each in said], self._charges.default_home)
        for each, is_new in zip(said, new, strict=True):
            if is_new and each.wants_receipt:
                self._link.hint(stanzas.receipt(self._link.address, each.sender, each.id))
            if is_new and each.wants_marker:
                self._link.hint(stanzas.displayed(self._link.address, each.sender, each.id, each.thread))
        uids = dict.fromkeys(user_id(each.jid) for each in said)
        ours = await self._charges.among(uids)
        await self._read(ours)
        others = {user_id(each.jid) for each, is_new in zip(said, new, strict=True) if is_new} - set(ours)
        await self._heard.tell(list(others))
        return sum(new)

    def _sentence(self, said: Said) -> Sentence:
        written, since_s = msgspec.msgpack.encode(said), incoming.same_since_s(said, self._clock.wall_s())
        return Sentence(said.jid, said.token, written, self._link.address, since_s)

    async def _pass_on(self) -> None:
        while True:
            await self._has_orders.wait()
            self._has_orders.clear()
            while self._ordered:
                each = self._ordered.popleft()
                self._waiting_orders[each.jid] -= 1
                if not self._waiting_orders[each.jid]:
                    del self._waiting_orders[each.jid]
                await self._pass(each)

    async def _pass(self, ordered: Ordered) -> None:
        uid = user_id(ordered.jid)
        try:
            await self._heard.arrive(ordered.jid, self._link.address)
            if not await self._charges.among([uid]):
                await self._heard.order(Order(uid, msgspec.msgpack.encode(ordered), self._link.voice))
                return
        except StoreUnavailable:
            _log.info("an order is answered by whoever got it", user=uid)
        self._orders.hear(ordered)

    async def _read(self, uids: Sequence[UserId]) -> None:
        if uids:
            self._desk.read(await self._heard.read(uids))

    # What other bots heard.

    async def _listen(self) -> None:
        after = ""
        while True:
            try:
                news = await self._heard.news(after)
                ours = set(await self._charges.among(set(news.said.values()) | {o.uid for o in news.orders.values()}))
                await self._read([uid for uid in dict.fromkeys(news.said.values()) if uid in ours])
                for order in news.orders.values():
                    if order.uid in ours:
                        ordered = msgspec.msgpack.decode(order.ordered, type=Ordered)
                        self._orders.hear(msgspec.structs.replace(ordered, voice=order.voice))
                taken = [place for place, uid in news.said.items() if uid in ours]
                await self._heard.taken([*taken, *(place for place, each in news.orders.items() if each.uid in ours)])
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            after = news.after

    async def _look(self) -> None:
        """Look at all that waits, when there are more whom we serve, and now and then."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._gained.wait()
            self._gained.clear()
            try:
                await self._read(await self._charges.among(await self._heard.unread()))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                self._gained.set()

    async def _say(self) -> None:
        """Write what others have us write."""
        while True:
            try:
                await self._link.up.wait()
                voice = self._link.voice
                found = await self._heard.to_say(voice, "0")
                if found:
                    await self._link.send(list(found.values()))
                    await self._heard.wrote(voice, list(found))
            except (StoreUnavailable, LinkLost):
                await asyncio.sleep(_RETRY_S)
