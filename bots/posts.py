"""Which bots this process runs, and whom they serve: what several processes share out, said once a second.

Processes of one *account* are all connected, and share out its people. *Components* let in one connection per address:
the processes share out the addresses, and who gets none stands by.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from bots.bot import Bot
from bots.charges import EVERYBODY, PARTS, Charges
from bots.link import LinkLost
from bots.tasks import end, together
from service.clock import Clock
from service.errors import StoreUnavailable
from service.settings import Settings
from service.store import Store
from service.store.spread import Dead, Spread

BEAT_EVERY_S: Final = 1.0
GIVE_BACK_WITHIN_S: Final = 10.0
_log = structlog.get_logger()


class Post(Protocol):
    """What a process does for Coronet's addresses."""

    async def keep(self) -> None:
        """Serve until cancelled, and then free what was ours."""
        ...

    def ready(self) -> None:
        """Return if we can serve, or stand by. Raises LinkLost."""
        ...


def post(settings: Settings, store: Store, clock: Clock) -> Post:
    """Return what this process is to do."""
    return Account(settings, store, clock) if settings.xmpp_login == "client" else Components(settings, store, clock)


class _Share:
    """Our share of something: numbers, held as long as we say that we live."""

    def __init__(self, store: Store, name: str, parts: int, ttl_s: float) -> None:
        self.me = secrets.token_hex(4)
        self._store = store
        self._name = name
        self._parts = parts
        self._ttl_s = ttl_s
        self._said = ""

    async def beat(self, back: frozenset[int], monotonic_s: Callable[[], float]) -> tuple[Spread, float] | None:
        """Return what is ours, and until when (monotonic s) for sure; None if Redis is away."""
        until_s = monotonic_s() + self._ttl_s
        try:
            spread = await self._store.spreads.beat(self._name, self.me, self._parts, self._ttl_s, back)
        except StoreUnavailable as error:
            if str(error) != self._said:
                self._said = str(error)
                _log.warning("lease not renewed", reason=self._said)
            return None
        self._said = ""
        return spread, until_s

    async def bury(self, dead: Dead) -> None:
        """Free what a dead process held."""
        with contextlib.suppress(StoreUnavailable):
            await self._store.spreads.bury(self._name, dead.holder)

    async def leave(self) -> None:
        """Free what is ours."""
        with contextlib.suppress(StoreUnavailable):
            await self._store.spreads.leave(self._name, self.me)


class Account:
    """One of the bots that share an account, each with a session of its own, and with people of its own."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Serve as the settings say."""
        self._ttl_s = settings.lease_ttl_s
        self._clock = clock
        self._share = _Share(store, name(settings), PARTS, settings.lease_ttl_s)
        self._charges = Charges(store.heard, clock, settings.xmpp_jid)
        self._bot = Bot(settings, store, clock, self._charges, self._share.me)
        self._held: frozenset[int] = frozenset()
        self._ready_to_go: frozenset[int] = frozenset()
        self._giving: asyncio.Task[None] | None = None
        self._burying: asyncio.Task[None] | None = None
        self._losing: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """See :meth:`Post.keep`."""
        try:
            await together(self._bot.run(), self._beat())
        finally:
            try:
                await end(*filter(None, (self._giving, self._burying, self._losing)))
            finally:
                await self._share.leave()

    def ready(self) -> None:
        """See :meth:`Post.ready`."""
        _raise_if_away(self._bot)

    async def _beat(self) -> None:
        seen_s = -math.inf
        while True:
            now_s = self._clock.monotonic_s()
            if self._bot.connection.up.is_set():
                seen_s = now_s
            if now_s - seen_s <= self._ttl_s:
                await self._once()
            elif self._held:
                _log.warning("no session with the XMPP server: others serve our people meanwhile")
                await self._share.leave()
                self._charges.hold(frozenset())
                self._held = frozenset()
                self._losing = asyncio.create_task(self._give(frozenset()))
            await asyncio.sleep(BEAT_EVERY_S)

    async def _once(self) -> None:
        back = self._ready_to_go
        answered = await self._share.beat(back, self._clock.monotonic_s)
        if answered is None:
            return
        spread, until_s = answered
        self._ready_to_go -= back
        gained, lost = spread.mine - self._held, self._held - spread.mine
        self._held = spread.mine
        surplus = len(spread.mine) - spread.most
        if surplus > 0 and (self._giving is None or self._giving.done()):
            leaving = frozenset(sorted(spread.mine)[-surplus:])
            self._charges.hold(spread.mine - leaving, until_s)
            self._giving = asyncio.create_task(self._give(leaving))
        elif self._giving is None or self._giving.done():
            self._charges.hold(spread.mine - self._ready_to_go, until_s)
        else:
            self._charges.hold(self._charges.parts & spread.mine, until_s)
        if lost - back:
            _log.warning("others took our people over", parts=len(lost - back))
            self._losing = asyncio.create_task(self._give(frozenset()))
        if gained:
            _log.info("serving", parts=len(spread.mine), of=PARTS)
            await self._bot.gained(gained)
        self._bot.certain()
        if spread.dead and (self._burying is None or self._burying.done()):
            self._burying = asyncio.create_task(self._bury(spread.dead))

    async def _give(self, parts: frozenset[int]) -> None:
        """Finish what we began for people who get another bot."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_WITHIN_S):
                await self._bot.lost()
        self._ready_to_go |= parts

    async def _bury(self, dead: tuple[Dead, ...]) -> None:
        for each in dead:
            if await self._bot.settle(each, self._ttl_s):
                await self._share.bury(each)


class Components:
    """The addresses that this process has of all that are shared out, with a bot for each."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Serve as the settings say."""
        self._settings = settings
        self._store = store
        self._clock = clock
        self._addresses = addresses(settings)
        self._share = _Share(store, name(settings), len(self._addresses), settings.lease_ttl_s)
        self._bots: dict[int, tuple[Bot, Charges, asyncio.Task[None]]] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._knows_its_share = False

    async def keep(self) -> None:
        """See :meth:`Post.keep`."""
        try:
            while True:
                await self._once()
                await _sleep_unless_ended([task for _, _, task in self._bots.values()])
        finally:
            try:
                await end(*(task for _, _, task in self._bots.values()), *self._ending.values())
            finally:
                await self._share.leave()

    def ready(self) -> None:
        """See :meth:`Post.ready`."""
        if not self._knows_its_share:
            raise LinkLost("Which addresses this process serves has not been settled yet. Does Redis answer?")
        for bot, _, _ in self._bots.values():
            _raise_if_away(bot)

    async def _once(self) -> None:
        ended = frozenset(number for number, task in self._ending.items() if task.done())
        answered = await self._share.beat(ended, self._clock.monotonic_s)
        if answered is None:
            return
        spread, until_s = answered
        for number in ended:
            del self._ending[number]
        for number in frozenset(self._bots) - spread.mine:
            self._end(number)
        for number in sorted(spread.mine - frozenset(self._bots) - frozenset(self._ending)):
            self._start(number)
        self._knows_its_share = True
        for bot, charges, _ in self._bots.values():
            charges.hold(EVERYBODY, until_s)
            bot.certain()
        for dead in spread.dead:  # our connection takes the place of theirs
            await self._share.bury(dead)
        for number in sorted(self._bots)[spread.most :]:
            self._end(number)

    def _start(self, number: int) -> None:
        address = self._addresses[number]
        _log.info("serving", jid=address)
        charges = Charges(self._store.heard, self._clock, address, self._addresses)
        charges.hold(EVERYBODY)
        settings = self._settings.model_copy(update={"xmpp_jid": address})
        bot = Bot(settings, self._store, self._clock, charges, self._share.me)
        self._bots[number] = (bot, charges, asyncio.create_task(bot.run()))

    def _end(self, number: int) -> None:
        """Have a bot finish, which takes longer than a heartbeat; its address is given back when it has."""
        _log.info("another process is to serve it", jid=self._addresses[number])
        _, _, task = self._bots.pop(number)
        self._ending[number] = asyncio.create_task(end(task))


def addresses(settings: Settings) -> tuple[str, ...]:
    """Return all addresses that are shared out; the first is the home of people whose home is unknown."""
    return tuple(dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards)))


def name(settings: Settings) -> str:
    """Return under which name processes with these settings share out what they do."""
    return f"bots:{settings.xmpp_jid}"


def _raise_if_away(bot: Bot) -> None:
    if not bot.connection.up.is_set():
        raise LinkLost("There is no session with the XMPP server. Is it running, and are the xmpp_* settings right?")


async def _sleep_unless_ended(tasks: list["asyncio.Task[None]"]) -> None:
    """Wait until the next heartbeat; raise what ended a bot that was to go on."""
    if not tasks:
        await asyncio.sleep(BEAT_EVERY_S)
        return
    ended, _ = await asyncio.wait(tasks, timeout=BEAT_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()
