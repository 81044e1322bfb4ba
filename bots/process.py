"""One bot process and its share of the work: it renews leases once a second, and runs the bots that serve them.

Processes of one *account* are all connected, and share out its people. *Components* let in one connection per address:
the processes share out the addresses, and who gets none stands by.
"""

import abc
import asyncio
import contextlib
import math
import secrets
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from bots.bot import Bot
from bots.cluster.assigned_users import ALL_PARTITIONS, PARTITION_COUNT, AssignedUsers
from bots.cluster.partitions import Partitions, State
from bots.tasks import cancel_and_wait
from bots.xmpp.interface import XmppSessionLost
from service.clock import Clock
from service.errors import StoreUnavailable
from service.settings import Settings
from service.store import Store
from service.store.coordination.leases import FailedProcess

BEAT_EVERY_S: Final = 1.0
DRAIN_WITHIN_S: Final = 10.0
_log = structlog.get_logger()


class Process(abc.ABC):
    """A process that shares numbered partitions with others. :meth:`run` drives it."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, count: int) -> None:
        """Share ``count`` partitions with the processes that have the same settings."""
        self._settings = settings
        self._store = store
        self._clock = clock
        self._id = secrets.token_hex(4)
        self._name = name(settings)
        self._count = count
        self._ttl_s = settings.lease_ttl_s
        self._partitions = Partitions()
        self._until_s = -math.inf
        """Until when (monotonic s) nobody can have taken our partitions over."""
        self._bots: dict[int, tuple[Bot, AssignedUsers, asyncio.Task[None]]] = {}
        self._draining: set[asyncio.Task[None]] = set()
        self._recovering: asyncio.Task[None] | None = None
        self._warned = ""

    @abc.abstractmethod
    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        """Serve what is served now, of which these partitions are new; have :meth:`_drain` drain these others."""

    async def _recover(self, _failed: FailedProcess, /) -> bool:
        """Recover the work of a failed process; return False if that has to be repeated.

        There is nothing to do for a component: its new connection takes the place of the old one.
        """
        return True

    async def run(self) -> None:
        """Serve until cancelled, and then give up all leases."""
        try:
            while True:
                await self._beat()
                await self._sleep()
        finally:
            try:
                tasks = [task for _, _, task in self._bots.values()]
                await cancel_and_wait(*tasks, *self._draining, *filter(None, [self._recovering]))
            finally:
                await self._leave()

    def ready(self) -> None:
        """Return if we can serve, or stand by. Raises XmppSessionLost."""
        if self._until_s == -math.inf:
            raise XmppSessionLost(
                "Which part this process serves has not been settled yet. Do Redis and the server answer?"
            )
        if not all(bot.connection.connected.is_set() for bot, _, _ in self._bots.values()):
            raise XmppSessionLost(
                "There is no session with the XMPP server. Is it running, and are the xmpp_* settings right?"
            )

    async def _sleep(self) -> None:
        """Wait until the next heartbeat; raise what ended a bot that was to go on."""
        tasks = [task for _, _, task in self._bots.values()]
        if not tasks:
            await asyncio.sleep(BEAT_EVERY_S)
            return
        ended, _ = await asyncio.wait(tasks, timeout=BEAT_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()

    async def _beat(self) -> None:
        returned, until_s = self._partitions.being(State.DRAINED), self._clock.monotonic_s() + self._ttl_s
        try:
            spread = await self._store.partition_leases.heartbeat(
                self._name, self._id, self._count, self._ttl_s, returned
            )
        except StoreUnavailable as error:
            if str(error) != self._warned:
                self._warned = str(error)
                _log.warning("lease not renewed", reason=self._warned)
            return
        self._warned = ""
        self._until_s = until_s
        taken = self._partitions.being(State.SERVED) - spread.partitions
        if taken:
            _log.warning("others took our people over", parts=len(taken))
        await self._become(self._partitions.renewed(spread.partitions, spread.max_partitions, returned))
        if spread.failed and (self._recovering is None or self._recovering.done()):
            self._recovering = asyncio.create_task(self._bury(spread.failed))

    async def _become(self, partitions: Partitions) -> None:
        before, self._partitions = self._partitions, partitions
        gained = partitions.being(State.SERVED) - before.being(State.SERVED)
        await self._apply(gained, partitions.being(State.DRAINING) - before.being(State.DRAINING))

    def _drain(self, numbers: frozenset[int], finish: Coroutine[Any, Any, None]) -> None:
        """Give partitions back once what was begun for them is finished, or ``DRAIN_WITHIN_S`` have passed."""

        async def drain() -> None:
            try:
                async with asyncio.timeout(DRAIN_WITHIN_S):
                    await finish
            except TimeoutError:
                _log.warning("what was begun for others' people is not finished", parts=len(numbers))
            finally:
                self._partitions = self._partitions.drained(numbers)

        task = asyncio.create_task(drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _bury(self, failed: tuple[FailedProcess, ...]) -> None:
        for each in failed:
            if await self._recover(each):
                with contextlib.suppress(StoreUnavailable):  # then it is repeated
                    await self._store.partition_leases.release_failed(self._name, each.holder)

    async def _leave(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._store.partition_leases.release(self._name, self._id)


class Account(Process):
    """One of the processes that share an account, each with a session of its own, and with people of its own."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Serve as the settings say."""
        super().__init__(settings, store, clock, PARTITION_COUNT)
        self._assigned_users = AssignedUsers(store.inbound_log, clock, settings.xmpp_jid)
        self._bot = Bot(settings, store, clock, self._assigned_users, self._id)
        self._seen_s = -math.inf

    async def run(self) -> None:
        """See :meth:`Process.run`."""
        self._bots[0] = self._bot, self._assigned_users, asyncio.create_task(self._bot.run())
        await super().run()

    async def _beat(self) -> None:
        """Renew our leases while there is a session; without one for long, others serve our people."""
        now_s = self._clock.monotonic_s()
        if self._bot.connection.connected.is_set():
            self._seen_s = now_s
        if now_s - self._seen_s <= self._ttl_s:
            await super()._beat()
        elif self._partitions.being(State.SERVED):
            _log.warning("no session with the XMPP server: others serve our people meanwhile")
            await self._leave()
            await self._become(self._partitions.lost())

    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        served = self._partitions.being(State.SERVED)
        self._assigned_users.assign(served, self._until_s)
        if draining:
            self._drain(draining, self._bot.lost())
        if gained:
            _log.info("serving", parts=len(served), of=PARTITION_COUNT)
            await self._bot.gained(gained)
        self._bot.certain()

    async def _recover(self, failed: FailedProcess, /) -> bool:
        return await self._bot.takeover.recover(failed, self._ttl_s)


class Components(Process):
    """A process that serves some of the addresses that are shared out, with a bot for each."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Serve as the settings say."""
        self._addresses = addresses(settings)
        super().__init__(settings, store, clock, len(self._addresses))

    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        for number in draining:
            _log.info("another process is to serve it", jid=self._addresses[number])
            self._drain(frozenset((number,)), cancel_and_wait(self._bots.pop(number)[2]))
        for number in sorted(gained):
            self._start(number)
        for bot, assigned_users, _ in self._bots.values():
            assigned_users.assign(ALL_PARTITIONS, self._until_s)
            bot.certain()

    def _start(self, number: int) -> None:
        address = self._addresses[number]
        _log.info("serving", jid=address)
        assigned_users = AssignedUsers(self._store.inbound_log, self._clock, address, self._addresses)
        assigned_users.assign(ALL_PARTITIONS)
        settings = self._settings.model_copy(update={"xmpp_jid": address})
        bot = Bot(settings, self._store, self._clock, assigned_users, self._id)
        self._bots[number] = bot, assigned_users, asyncio.create_task(bot.run())


def create(settings: Settings, store: Store, clock: Clock) -> Process:
    """Return the process for these settings."""
    return Account(settings, store, clock) if settings.xmpp_login == "client" else Components(settings, store, clock)


def addresses(settings: Settings) -> tuple[str, ...]:
    """Return all addresses that are shared out; the first is the home of people whose home is unknown."""
    return tuple(dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards)))


def name(settings: Settings) -> str:
    """Return under which name processes with these settings share out what they do."""
    return f"bots:{settings.xmpp_jid}"
