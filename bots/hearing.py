"""Takes in what people say and their software orders, and sees to it that whoever serves them answers, once.

What is said is in the store before anybody answers it (:mod:`service.store.heard`); so no bot's death loses it, and of
two bots of one account that were brought the same words one answers. Orders are answered at once or not at all, as
their software waits.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from bots import stanzas
from bots.charges import Charges
from bots.counter import Counter as Orders
from bots.desk import Desk
from bots.link import Link, LinkLost, Ordered, Said
from bots.tasks import together
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.heard import MOST_UNREAD, Heard, Order, Sentence
from service.store.keys import user_id

AT_ONCE: Final = 500
_MOST_WAITING: Final = 10_000
_LOOK_EVERY_S: Final = 10.0
_RETRY_S: Final = 0.5
_log = structlog.get_logger()


class Hearing:
    """One bot's ears. :meth:`run` drives them; the other methods never wait."""

    def __init__(self, heard: Heard, link: Link, charges: Charges, *, desk: Desk, orders: Orders) -> None:
        """Have ``desk`` and ``orders`` answer whom ``charges`` has."""
        self._heard = heard
        self._link = link
        self._charges = charges
        self._desk = desk
        self._orders = orders
        self._said: list[Said] = []
        self._ordered: list[Ordered] = []
        self._waiting: Counter[str] = Counter()
        self._stirred = asyncio.Event()
        self._gained = asyncio.Event()
        self._gained.set()

    async def run(self) -> None:
        """Hear until cancelled."""
        await together(self._take_in(), self._listen(), self._look(), self._say())

    def said(self, event: Said) -> None:
        """A person said something. Who says too much at once is not heard."""
        if self._waiting[event.jid] < MOST_UNREAD and len(self._said) < _MOST_WAITING:
            self._waiting[event.jid] += 1
            self._said.append(event)
            self._stirred.set()

    def ordered(self, event: Ordered) -> None:
        """A person's software ordered something."""
        if len(self._ordered) < _MOST_WAITING:
            self._ordered.append(event)
            self._stirred.set()

    def gained(self) -> None:
        """There are more whom we serve."""
        self._gained.set()

    async def _take_in(self) -> None:
        while True:
            await self._stirred.wait()
            said, self._said = self._said[:AT_ONCE], self._said[AT_ONCE:]
            ordered, self._ordered = self._ordered, []
            if not self._said:
                self._stirred.clear()
            self._waiting.subtract(each.jid for each in said)
            self._waiting = +self._waiting
            await self._sort(said)
            for each in ordered:
                await self._pass(each)

    async def _sort(self, said: Sequence[Said]) -> None:
        """Keep what was said; answer whom we serve, and tell the others' bots."""
        sentences = [Sentence(each.jid, each.token, msgspec.msgpack.encode(each), self._link.address) for each in said]
        try:
            new = await self._heard.put(sentences, self._charges.default_home)
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
        except StoreUnavailable as error:
            _log.warning("nothing can be kept of what people say", reason=str(error), sentences=len(said))
            for each in said:
                if self._charges.holds(user_id(each.jid)):
                    self._desk.hear(each)

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
