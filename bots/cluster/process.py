"""A bot process: it renews its leases once a second and runs the bots that serve its partitions.

- Several processes can log in to one *account* at the same time. They share the users of the account.
- A *component* (XEP-0114) allows only one connection per address. The processes of a component divide its addresses
  among themselves. A process that gets no address runs no bot, but is ready to take over an address.
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
from bots.cluster.partitions import ALL_PARTITIONS, PARTITION_COUNT, AssignedUsers, Partitions, PartitionState
from bots.xmpp.interface import XmppSessionLost
from service.asyncio_tasks import cancel_and_wait
from service.clock import Clock
from service.errors import StoreUnavailable
from service.observability.metrics import DELIVERY_OVERDUE, LEASES_LOST, XMPP_SESSIONS, GaugeShare
from service.settings import Settings
from service.store import Store
from service.store.coordination.partition_leases import FailedProcess

HEARTBEAT_INTERVAL_S: Final = 1.0
DRAIN_TIMEOUT_S: Final = 10.0
_log = structlog.get_logger()


class Process(abc.ABC):
    """Base class of the processes that run bots and divide the users among themselves.

    The users are divided into numbered partitions. A process serves a partition while it holds the partition's
    lease in the store.
    """

    def __init__(self, settings: Settings, store: Store, clock: Clock, count: int) -> None:
        """Create a process that shares ``count`` partitions with the other processes that have the same settings."""
        self._settings = settings
        self._store = store
        self._clock = clock
        self._id = secrets.token_hex(4)
        self._group = lease_group(settings)
        self._count = count
        self._ttl_s = settings.lease_ttl_s
        self._partitions = Partitions()
        self._valid_until_s = -math.inf
        """Until when no other process can have taken over the partitions, in seconds of the monotonic clock."""
        self._bots: dict[int, tuple[Bot, AssignedUsers, asyncio.Task[None]]] = {}
        self._drain_tasks: set[asyncio.Task[None]] = set()
        self._recovery_task: asyncio.Task[None] | None = None
        self._last_warning = ""
        self._sessions = GaugeShare(XMPP_SESSIONS)

    @abc.abstractmethod
    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        """Start or stop serving partitions after their states have changed.

        Serve all partitions in the state SERVED, and end the work for those in ``draining`` by calling
        :meth:`_drain`.

        - ``gained``: the partitions that have become SERVED since the last call.
        - ``draining``: the partitions that have become DRAINING since the last call.

        This method is called after each successful heartbeat, and after the process has given up its leases.
        """

    async def _recover(self, _failed: FailedProcess, /) -> bool:
        """Recover the work of a failed process; return False if the recovery must be repeated.

        The default implementation does nothing and returns True. That is enough for components, whose new connection
        replaces the connection of the failed process.
        """
        return True

    async def run(self) -> None:
        """Serve until cancelled; then stop the bots and give up all leases."""
        try:
            while True:
                await self._send_heartbeat()
                await self._sleep()
                self._count_sessions()
        finally:
            self._sessions.set({})
            try:
                bot_tasks = [task for _, _, task in self._bots.values()]
                await cancel_and_wait(*bot_tasks, *self._drain_tasks, *filter(None, [self._recovery_task]))
            finally:
                await self._release_leases()

    def check_ready(self) -> None:
        """Raise XmppSessionLost if the process is not ready.

        It is ready if it knows which partitions it holds, and all its bots are connected to the XMPP server.
        """
        if self._valid_until_s == -math.inf:
            raise XmppSessionLost(
                "The partitions of this process are not known yet. Do Redis and the XMPP server respond?"
            )
        if not all(bot.connection.connected.is_set() for bot, _, _ in self._bots.values()):
            raise XmppSessionLost(
                "There is no session with the XMPP server. Is it running, and are the xmpp_* settings right?"
            )

    def _count_sessions(self) -> None:
        """Update the metrics for the number of XMPP sessions, and for how long messages have been overdue."""
        connected = sum(bot.connection.connected.is_set() for bot, _, _ in self._bots.values())
        self._sessions.set({"connected": connected, "disconnected": len(self._bots) - connected})
        DELIVERY_OVERDUE.set(max((bot.delivery.overdue_s() for bot, _, _ in self._bots.values()), default=0.0))

    async def _sleep(self) -> None:
        """Wait until the next heartbeat is due. If a bot has ended with an exception, raise that exception."""
        tasks = [task for _, _, task in self._bots.values()]
        if not tasks:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            return
        ended, _ = await asyncio.wait(tasks, timeout=HEARTBEAT_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()

    async def _send_heartbeat(self) -> None:
        """Renew the leases, return those of drained partitions, and start or stop serving partitions accordingly."""
        returned, leases = self._partitions.in_state(PartitionState.DRAINED), self._store.partition_leases
        valid_until_s = self._clock.monotonic_s() + self._ttl_s
        try:
            heartbeat = await leases.heartbeat(self._group, self._id, self._count, self._ttl_s, returned)
        except StoreUnavailable as error:
            if str(error) != self._last_warning:
                self._last_warning = str(error)
                _log.warning("lease renewal failed", reason=self._last_warning)
            return
        self._last_warning = ""
        self._valid_until_s = valid_until_s
        taken_over = self._partitions.in_state(PartitionState.SERVED) - heartbeat.partitions
        if taken_over:
            LEASES_LOST.labels("bot").inc()
            _log.warning("user partitions lost, taken over by other processes", partitions=len(taken_over))
        await self._change_partitions(
            self._partitions.after_heartbeat(heartbeat.partitions, heartbeat.max_partitions, returned)
        )
        if heartbeat.failed and (self._recovery_task is None or self._recovery_task.done()):
            self._recovery_task = asyncio.create_task(self._recover_all(heartbeat.failed))

    async def _change_partitions(self, partitions: Partitions) -> None:
        before, self._partitions = self._partitions, partitions
        gained = partitions.in_state(PartitionState.SERVED) - before.in_state(PartitionState.SERVED)
        draining = partitions.in_state(PartitionState.DRAINING) - before.in_state(PartitionState.DRAINING)
        await self._apply(gained, draining)

    def _drain(self, numbers: frozenset[int], finish: Coroutine[Any, Any, None]) -> None:
        """Start a task that awaits ``finish``, the coroutine that ends the work for the partitions ``numbers``.

        The partitions count as drained when ``finish`` has ended, or after ``DRAIN_TIMEOUT_S`` seconds. The next
        heartbeat then returns their leases.
        """

        async def drain() -> None:
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    await finish
            except TimeoutError:
                _log.warning("user partition drain timed out", partitions=len(numbers))
            finally:
                self._partitions = self._partitions.after_draining(numbers)

        task = asyncio.create_task(drain())
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)

    async def _recover_all(self, failed: tuple[FailedProcess, ...]) -> None:
        for each in failed:
            if await self._recover(each):
                with contextlib.suppress(StoreUnavailable):  # then the recovery is repeated, which is harmless
                    await self._store.partition_leases.release_failed(self._group, each.holder)

    async def _release_leases(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._store.partition_leases.release(self._group, self._id)


class AccountProcess(Process):
    """One of the processes that share an XMPP account. It has its own session, and serves a part of the users."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Create the process and its bot without starting them; :meth:`run` starts them."""
        super().__init__(settings, store, clock, PARTITION_COUNT)
        self._assigned_users = AssignedUsers(store.home_addresses, clock, settings.xmpp_jid)
        self._bot = Bot(settings, store, clock, self._assigned_users, self._id)
        self._last_connected_s = -math.inf

    async def run(self) -> None:
        """Run the bot and renew the leases until cancelled, as described in :meth:`Process.run`."""
        self._bots[0] = self._bot, self._assigned_users, asyncio.create_task(self._bot.run())
        await super().run()

    async def _send_heartbeat(self) -> None:
        """Renew the leases, unless the XMPP session has been lost for longer than a lease lasts.

        In that case, give up the leases, so that other processes can serve the users.
        """
        now_s = self._clock.monotonic_s()
        if self._bot.connection.connected.is_set():
            self._last_connected_s = now_s
        if now_s - self._last_connected_s <= self._ttl_s:
            await super()._send_heartbeat()
        elif self._partitions.in_state(PartitionState.SERVED):
            _log.warning("user partitions released, no xmpp session")
            await self._release_leases()
            await self._change_partitions(self._partitions.after_release())

    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        served = self._partitions.in_state(PartitionState.SERVED)
        self._assigned_users.assign(served, self._valid_until_s)
        if draining:
            self._drain(draining, self._bot.on_partitions_lost())
        if gained:
            _log.info("user partitions acquired", partitions=len(served), of=PARTITION_COUNT)
            await self._bot.on_partitions_gained(gained)
        self._bot.delivery.on_lease_renewed()

    async def _recover(self, failed: FailedProcess, /) -> bool:
        return await self._bot.takeover.recover(failed, self._ttl_s)


class ComponentProcess(Process):
    """A process that serves some of the component's addresses, running one bot for each of them."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Create a process that shares the addresses in ``settings`` with other processes.

        Partition n consists of the users of the n-th address, counting from 0. Users without a known home address are
        served at the first address.
        """
        self._addresses = tuple(dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards)))
        super().__init__(settings, store, clock, len(self._addresses))

    async def _apply(self, gained: frozenset[int], draining: frozenset[int]) -> None:
        for number in draining:
            _log.info("xmpp address released", jid=self._addresses[number])
            self._drain(frozenset((number,)), cancel_and_wait(self._bots.pop(number)[2]))
        for number in sorted(gained):
            self._start_bot(number)
        for bot, assigned_users, _ in self._bots.values():
            assigned_users.assign(ALL_PARTITIONS, self._valid_until_s)
            bot.delivery.on_lease_renewed()

    def _start_bot(self, number: int) -> None:
        address = self._addresses[number]
        _log.info("xmpp address acquired", jid=address)
        assigned_users = AssignedUsers(self._store.home_addresses, self._clock, address, self._addresses)
        assigned_users.assign(ALL_PARTITIONS)
        settings = self._settings.model_copy(update={"xmpp_jid": address})
        bot = Bot(settings, self._store, self._clock, assigned_users, self._id)
        self._bots[number] = bot, assigned_users, asyncio.create_task(bot.run())


def create_process(settings: Settings, store: Store, clock: Clock) -> Process:
    """Return an AccountProcess if ``settings`` tell the bot to log in as a client, otherwise a ComponentProcess."""
    kind = AccountProcess if settings.xmpp_login == "client" else ComponentProcess
    return kind(settings, store, clock)


def lease_group(settings: Settings) -> str:
    """Return the name under which all processes with these settings share their leases."""
    return f"bots:{settings.xmpp_jid}"
