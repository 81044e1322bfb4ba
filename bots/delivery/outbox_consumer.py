"""The consumer of the users' outboxes: sends queued items to their recipients, about a hundred users at a time.

:mod:`bots.delivery.scheduler` decides which users are served next. One *burst* then sends to these users by the steps
in :mod:`bots.delivery.batch_sender`. This module receives the events on which the scheduler and the sender depend: new
sessions, receipts, bounces, presences, changed settings, and changes of the partitions that this process serves.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Final

import structlog

from bots.cluster.partitions import AssignedUsers, partition_of
from bots.delivery.batch_sender import BatchSender
from bots.delivery.scheduler import DeliveryScheduler
from bots.xmpp import stanzas
from bots.xmpp.events import MessageBounced, Receipt, UserPresence
from bots.xmpp.interface import XmppSender, XmppSessionLost, send_until_confirmed
from bots.xmpp.message_ids import is_batch_id, is_message_to, new_message_id
from service.asyncio_tasks import cancel_and_wait, retry_while_unavailable, run_until_one_ends
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.observability.metrics import OUTBOX_OLDEST, OUTBOX_USERS
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import MessageId

USERS_PER_BURST: Final = 100
"""Maximum number of users in a burst. The batches of these users are claimed in one Redis pipeline, sent together, and
completed in one pipeline."""
MAX_BURSTS: Final = 12
"""Maximum number of concurrent bursts. While some of them wait for the XMPP server, others claim and render."""

_SWEEP_INTERVAL_S = 60.0
_DEPTH_INTERVAL_S = 5.0
_OLDEST_SAMPLE = 100
_RETRY_S = 0.5

_log = structlog.get_logger()


class OutboxConsumer:
    """Delivers the outboxes (queues of notifications) of the users of one process.

    :meth:`run` sends the messages. The methods that handle events only record what has changed, and never wait.
    """

    def __init__(
        self, store: Store, xmpp: XmppSender, clock: Clock, assigned_users: AssignedUsers, messages_per_s: float
    ) -> None:
        """Create a consumer that sends the outboxes of ``assigned_users`` through ``xmpp``.

        Each user is sent at most ``messages_per_s`` messages per second on average. Nothing is sent until :meth:`run`
        is called.
        """
        self._assigned_users = assigned_users
        self._store = store
        self._xmpp = xmpp
        self._clock = clock
        self._scheduler = DeliveryScheduler(messages_per_s, assigned_users.includes)
        self._scheduler_changed = asyncio.Event()
        self._user_released = asyncio.Condition()
        self._bursts: dict[asyncio.Task[None], float] = {}  # task of each burst: its start (monotonic s)
        self._session_since_s = 0.0
        self._is_new_session = False
        self._gained_partitions: set[int] = set()
        self._recovery_needed = asyncio.Event()  # batches of other sessions or processes may be in flight
        self._arrived: list[tuple[UserId, MessageId, bool]] = []  # receipts: user, message, is the user's first
        self._receipts_arrived = asyncio.Event()
        self._sender = BatchSender(store, xmpp, clock, assigned_users, self._scheduler)
        self._recipients, self._receipts = self._sender.recipients, self._sender.receipts
        self._availability = self._sender.availability

    async def run(self) -> None:
        """Deliver until cancelled; then wait up to 2 s for deliveries in progress."""
        try:
            await run_until_one_ends(
                self._complete_received(), self._listen(), self._recover(), self._start_bursts(), self._measure_depth()
            )
        finally:
            if self._bursts:
                await asyncio.wait(self._bursts, timeout=2.0)
            await cancel_and_wait(*tuple(self._bursts))

    def overdue_s(self) -> float:
        """Return for how many seconds the oldest due message has been overdue; 0 if no message is due."""
        now_s = self._clock.monotonic_s()
        return max(0.0, now_s - min(self._scheduler.next_due_s(), *self._bursts.values(), now_s))

    # Event handlers.

    def on_session_started(self) -> None:
        """Start the recovery of all users' batches in flight, because a new XMPP session has begun.

        A batch is in flight if it was sent but is not complete. The previous session was not resumed, so these
        batches may be lost. The recovery sends them again where necessary.
        """
        self._session_since_s = self._clock.wall_s()
        self._is_new_session = True
        self._availability.on_session_started()
        self._recovery_needed.set()

    def on_partitions_gained(self, partitions: frozenset[int]) -> None:
        """Start the recovery of the batches in flight to the users in ``partitions``, which this process has gained.

        A batch is in flight if it was sent but is not complete. Another process has served these users until now. The
        recovery sends its batches again where necessary.
        """
        self._gained_partitions |= partitions
        self._recovery_needed.set()

    def on_partitions_lost(self) -> None:
        """Drop the cached data of users whom this process no longer serves."""
        self._recipients.retain(self._assigned_users.includes)
        self._receipts.retain(self._assigned_users.includes)

    def on_lease_renewed(self) -> None:
        """Resume deliveries if they have stopped because the leases of ``assigned_users`` had expired."""
        self._scheduler_changed.set()

    async def drain(self) -> None:
        """Wait until no delivery or command is in progress for users whom this process no longer serves."""
        async with self._user_released:
            await self._user_released.wait_for(lambda: not self._scheduler.has_locked_unassigned())

    def on_receipt(self, event: Receipt) -> None:
        """Complete the batch whose receipt has arrived from a client.

        The first receipt from a user (other than a chat marker) also shows that the user's client sends receipts.
        """
        user_id, message_id = keys.user_id(event.jid), event.message_id
        is_first = (
            not event.is_marker and is_message_to(user_id, message_id) and not self._recipients.sends_receipts(user_id)
        )
        if is_batch_id(user_id, message_id) or is_first:
            if is_first:
                self._recipients.on_first_receipt(user_id)
            self._receipts.on_receipt(user_id, message_id, self._clock.wall_s())
            self._arrived.append((user_id, message_id, is_first))
            self._sender.on_response(message_id)
            self._receipts_arrived.set()

    def on_bounced(self, event: MessageBounced) -> None:
        """Pause delivery to a user whose batch has bounced; the pause doubles with each consecutive bounce."""
        user_id = keys.user_id(event.jid)
        if is_batch_id(user_id, event.message_id) and self._assigned_users.includes(user_id):
            self._sender.on_response(event.message_id)
            self._back_off(user_id, event.condition)
            _log.info("message bounced", user=user_id, condition=event.condition)
            self._scheduler_changed.set()

    def on_presence(self, event: UserPresence) -> None:
        """Update the schedule of a user whose presence has changed.

        - If the user is online, the back-off after a bounce ends.
        - If the user is online and neither away nor busy, messages are no longer deferred.
        - If the user is online with an additional client and receipts are awaited, the messages without receipts are
          sent again unless the receipts arrive soon.
        - If the user is offline, batches that the server has acknowledged are not sent again before the user is
          online, unless the user's messages bounce.
        """
        user_id = keys.user_id(event.jid)
        now_s = self._clock.monotonic_s()
        if not event.is_online:
            self._availability.on_presence(user_id, is_available=False)
            self._scheduler.on_offline(user_id)
            return
        self._scheduler.on_online(user_id, now_s)
        if event.is_new_client and self._receipts.has_awaited(user_id):
            self._scheduler.on_new_client(user_id, now_s)
        if event.is_free is not None:
            self._availability.on_presence(user_id, is_available=event.is_free)
        if event.is_free:
            self._scheduler.end_deferral(user_id, now_s)
        self._scheduler_changed.set()

    # Effects of commands.

    def on_settings_changed(self, jid: str) -> None:
        """Apply a user's new settings at once."""
        user_id = keys.user_id(jid)
        self._recipients.remove(user_id)
        self._scheduler.end_deferral(user_id, self._clock.monotonic_s())
        self._scheduler_changed.set()

    def forget_user(self, jid: str) -> None:
        """Remove all data about a user from this process; call this inside :meth:`pause_user`."""
        user_id = keys.user_id(jid)
        self._recipients.remove(user_id)
        self._receipts.remove(user_id)
        self._availability.remove(user_id)

    async def remove_contact(self, jid: str) -> None:
        """End the presence subscriptions between a user and the bot, in both directions. Do nothing for a room."""
        if jid in self._xmpp.rooms:
            return
        stanza_id = new_message_id(keys.user_id(jid))
        removal = stanzas.contact_removal(self._xmpp.address, jid, stanza_id, is_account=self._xmpp.is_account)
        await send_until_confirmed(self._xmpp, removal)

    def request_presence(self, jid: str) -> None:
        """Subscribe to a user's presence and probe it, because the user's settings make deliveries depend on it."""
        self._xmpp.send_unconfirmed(stanzas.presence(self._xmpp.address, jid, "subscribe"))
        self._xmpp.send_unconfirmed(stanzas.presence(self._xmpp.address, jid, "probe"))

    @contextlib.asynccontextmanager
    async def pause_user(self, jid: str) -> AsyncIterator[None]:
        """Async context manager: pause delivery to a user while the context is open.

        Entering the context waits until every batch that has been claimed for the user has been sent. No further batch
        is claimed until the context is left.
        """
        user_id = keys.user_id(jid)
        async with self._user_released:
            await self._user_released.wait_for(lambda: self._scheduler.try_acquire(user_id))
        try:
            yield
        finally:
            await self._release((user_id,), again=())

    # Scheduling.

    async def _listen(self) -> None:
        """Schedule users when items are queued for them.

        In addition, periodically schedule all users with items, in case a notification was lost.
        """
        after, swept_s = "", -math.inf
        while True:
            try:
                user_ids, after = await self._store.outbox.wait_for_wakeups(after)
                is_sweep = self._clock.monotonic_s() - swept_s > _SWEEP_INTERVAL_S
                if is_sweep:
                    user_ids, swept_s = await self._store.outbox.waiting_users(), self._clock.monotonic_s()
                user_ids = await self._assigned_users.select(user_ids)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            if is_sweep:  # a process that was suspended while it lost these users may have claimed batches for them
                self._scheduler.require_recovery(user_ids)
            self._scheduler.on_items_queued(user_ids, self._clock.monotonic_s())
            self._scheduler_changed.set()

    async def _recover(self) -> None:
        """Start the recovery of batches in flight whenever an event requires it, until cancelled.

        The recovery sends batches again if they may have been lost. After a new session has started, it covers the
        batches of all users. After partitions have been gained, it covers the batches of the users in these
        partitions.
        """
        while True:
            await self._recovery_needed.wait()
            is_new, partitions = self._is_new_session, self._gained_partitions
            self._is_new_session, self._gained_partitions = False, set()
            gained, lost, jids = await retry_while_unavailable(
                partial(self._find_recoveries, partitions, is_new=is_new)
            )
            now_s = self._clock.monotonic_s()
            self._scheduler.require_recovery(gained)
            self._scheduler.on_items_queued(gained, now_s)
            self._scheduler.on_session_lost(lost, now_s)
            if not (self._is_new_session or self._gained_partitions):
                self._recovery_needed.clear()
            self._scheduler_changed.set()
            for jid in filter(None, jids):
                self._xmpp.send_unconfirmed(stanzas.presence(self._xmpp.address, jid, "probe"))

    async def _find_recoveries(
        self, partitions: Collection[int], *, is_new: bool
    ) -> tuple[list[UserId], list[UserId], list[str]]:
        """Return (newly assigned users, users whose acknowledged batches may be lost, JIDs whose presence to probe).

        Only users with undelivered items are returned.

        - In a new session (``is_new``), no user is newly assigned, all users' acknowledged batches may be lost, and all
          presences must be probed.
        - Otherwise, only users in the newly assigned ``partitions`` are examined. A user's acknowledged batches may be
          lost if they were claimed before this session began. No presence is probed.
        """
        waiting = await self._assigned_users.select(await self._store.outbox.waiting_users())
        if is_new:
            return [], waiting, await self._store.users.jids(waiting)
        gained = [user_id for user_id in waiting if partition_of(user_id) in partitions]
        lost = [
            user_id
            for user_id, batches in (await self._store.outbox.in_flight(gained)).items()
            if any(batch.acked and batch.claimed_s < self._session_since_s for batch in batches)
        ]
        return gained, lost, []

    async def _start_bursts(self) -> None:
        """Start a burst, a task that sends to several users, whenever users are due.

        A burst is started only while there is a session and fewer than ``MAX_BURSTS`` bursts are running.
        """
        while True:
            self._scheduler_changed.clear()
            await self._xmpp.connected.wait()
            now_s = self._clock.monotonic_s()
            can_start = (
                len(self._bursts) < MAX_BURSTS
                and not self._recovery_needed.is_set()
                and self._assigned_users.is_lease_valid()
            )
            if can_start and (user_ids := self._scheduler.acquire_due(USERS_PER_BURST, now_s)):
                burst = asyncio.create_task(self._burst(user_ids))
                self._bursts[burst] = now_s
                burst.add_done_callback(self._on_burst_done)
                continue
            wait_s = self._scheduler.next_due_s() - now_s if can_start else math.inf
            # Not wait_for: Python 3.11's swallows a cancellation that comes together with the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s == math.inf else max(wait_s, 0.001)):
                    await self._scheduler_changed.wait()

    def _on_burst_done(self, burst: asyncio.Task[None]) -> None:
        self._bursts.pop(burst, None)
        self._scheduler_changed.set()

    async def _burst(self, user_ids: Sequence[UserId]) -> None:
        """Send due messages to these locked users and unlock them; reschedule those for whom more may be waiting."""
        again: Collection[UserId] = user_ids
        try:
            again = await self._try_send(user_ids)
        finally:
            await self._release(user_ids, again)

    async def _try_send(self, user_ids: Sequence[UserId]) -> Collection[UserId]:
        """Send due messages to these locked users; return the users for whom more may be waiting.

        After an unexpected exception, send to each user separately, so that the exception affects only the
        user whose batch caused it.
        """
        try:
            return await self._sender.send(user_ids)
        except XmppSessionLost:
            self._scheduler.on_send_failed(user_ids)  # a resumed session does not begin with a recovery
            return user_ids
        except StoreUnavailable as error:
            _log.warning("message delivery interrupted, will retry", error=str(error), users=len(user_ids))
            self._scheduler.on_send_failed(user_ids)
            await asyncio.sleep(_RETRY_S)
            return user_ids
        except Exception:  # noqa: BLE001 - whatever it is, the other users have to get their messages
            _log.exception("message delivery failed", users=len(user_ids))
            self._scheduler.on_send_failed(user_ids)
            if len(user_ids) == 1:
                self._back_off(user_ids[0], "internal-server-error")
            else:
                for user_id in user_ids:
                    await self._try_send([user_id])
            return user_ids

    def _back_off(self, user_id: UserId, condition: str) -> None:
        jitter = random.random()  # noqa: S311 - it only spreads retries
        self._scheduler.on_bounced(user_id, condition, self._clock.monotonic_s(), jitter)

    async def _release(self, user_ids: Sequence[UserId], again: Collection[UserId]) -> None:
        """Unlock users, and schedule those in ``again``, for whom more may be waiting."""
        now_s, more = self._clock.monotonic_s(), set(again)
        for user_id in user_ids:
            self._scheduler.release(user_id, now_s, again=user_id in more)
        self._scheduler_changed.set()
        async with self._user_released:
            self._user_released.notify_all()

    # Receipts and measurement.

    async def _complete_received(self) -> None:
        """Complete the batches whose receipts have arrived, and store which users have clients that send receipts."""
        while True:
            await self._receipts_arrived.wait()
            self._receipts_arrived.clear()
            arrived, self._arrived = self._arrived, []
            received = [(user_id, message_id) for user_id, message_id, _ in arrived if is_batch_id(user_id, message_id)]
            await self._sender.complete(received=received)
            now_s = self._clock.monotonic_s()
            for user_id, _, _ in arrived:
                self._scheduler.on_receipt(user_id, now_s)
            self._scheduler_changed.set()
            with contextlib.suppress(StoreUnavailable):  # after a restart, the next receipt shows it again
                await self._store.users.mark_receipts(list({user_id for user_id, _, is_first in arrived if is_first}))

    async def _measure_depth(self) -> None:
        """Periodically update the metrics about undelivered items, counted over all bot processes."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                waiting, longest_waiting = await asyncio.gather(
                    self._store.outbox.count_waiting(), self._store.outbox.waiting_users(_OLDEST_SAMPLE)
                )
                OUTBOX_USERS.set(waiting)
                queued_s = await self._store.outbox.oldest_queued_s(longest_waiting)
                now_s = self._clock.wall_s()
                OUTBOX_OLDEST.set(max((now_s - each_s for each_s in queued_s if each_s is not None), default=0.0))
            await asyncio.sleep(_DEPTH_INTERVAL_S)
