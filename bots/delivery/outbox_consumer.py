"""Delivery: sends the outbox's items to their recipients, about a hundred people at a time.

:mod:`bots.delivery.scheduler` decides whose turn it is. For these people one *burst* runs the steps of
:meth:`OutboxConsumer._send`: find what has to be sent again, filter, hold back, claim, correct, render, write, record.
batch has its message id from its claim on. It is complete when its receipt comes, for people whose client sends
receipts; for others when the server has it. Until then it is in flight: a later session, or the process that takes
over, finds it there and sends it again under the same id, and so does this one when the person comes online with a
client that was not there before.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from bots.cluster.assigned_users import AssignedUsers, partition_of
from bots.delivery.message_bodies import Bodies, Body, Corrections
from bots.delivery.recipient_cache import Receipts, Recipient, Recipients
from bots.delivery.scheduler import DeliveryScheduler
from bots.delivery.suppression import Choice, Withholding
from bots.tasks import end, together
from bots.xmpp import stanzas
from bots.xmpp.events import MessageBounced, Receipt, UserAvailable, UserUnavailable
from bots.xmpp.interface import XmppSender, XmppSessionLost, send_until_confirmed
from bots.xmpp.message_ids import fresh_id, is_batch, is_own
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.observability.metrics import DELIVERY_DELAY, OUTBOX_USERS
from service.observability.tracing import TRACING
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.outbox import Batch, ClaimRules, MessageId

BURST_USERS: Final = 100
"""People per burst: one Redis pipeline to claim, one stretch of stanzas, one pipeline to complete."""
BURSTS: Final = 12
"""Bursts at once: while some wait for the server, others claim and render, so that it never waits for us."""
MAX_ITEMS: Final = 60
"""Versions that are coalesced into one message."""
MAX_SENDS: Final = 3
"""How often a batch is sent whose receipt does not come although the person is there: a client may send none."""

_SWEEP_EVERY_S = 60.0
_COUNT_EVERY_S = 5.0
_RETRY_S = 0.5

_log = structlog.get_logger()


class _Message(msgspec.Struct, frozen=True):
    """A batch as it is sent; ``asked``: with a request for a receipt."""

    uid: UserId
    batch: Batch
    body: Body
    stanza: str
    asked: bool


class OutboxConsumer:
    """One process's delivery. :meth:`run` drives it; the event handlers never wait."""

    def __init__(
        self, store: Store, link: XmppSender, clock: Clock, assigned_users: AssignedUsers, messages_per_s: float
    ) -> None:
        """Deliver what ``store`` holds for ``assigned_users`` through ``link``; nothing starts before :meth:`run`."""
        self._assigned_users = assigned_users
        self._store = store
        self._link = link
        self._clock = clock
        self._dispatch = DeliveryScheduler(messages_per_s, assigned_users.includes)
        self._stirred = asyncio.Event()
        self._freed = asyncio.Condition()
        self._bursts: set[asyncio.Task[None]] = set()
        self._session_since_s = 0.0
        self._is_new_session = False
        self._gained: set[int] = set()
        self._unexamined = asyncio.Event()  # batches of other sessions or processes may be in flight
        self._arrived: list[tuple[UserId, MessageId, bool]] = []  # receipts; whether each is the person's first
        self._received = asyncio.Event()
        self._under_way: dict[MessageId, bool] = {}  # whether it came back, or has its receipt, before its burst ended
        self._receipts = Receipts()
        self._recipients = Recipients(store, self._receipts)
        self._withholding = Withholding(store, link, clock)
        self._corrections = Corrections(store)
        self._bodies = Bodies(store)

    async def run(self) -> None:
        """Deliver until cancelled; then let the bursts under way come to their end, for at most 2 s."""
        try:
            await together(self._complete(), self._listen(), self._recover(), self._pump(), self._count())
        finally:
            if self._bursts:
                await asyncio.wait(self._bursts, timeout=2.0)
            await end(*tuple(self._bursts))

    # Event handlers.

    def on_session_started(self) -> None:
        """A session began that continues no earlier one."""
        self._session_since_s = self._clock.wall_s()
        self._is_new_session = True
        self._withholding.started()
        self._unexamined.set()

    def on_partitions_gained(self, parts: frozenset[int]) -> None:
        """This process serves more people; what is in flight for them was sent by another one."""
        self._gained |= parts
        self._unexamined.set()

    def on_partitions_lost(self) -> None:
        """This process serves fewer people: what it remembers of the others will soon be old."""
        self._recipients.keep(self._assigned_users.includes)
        self._receipts.keep(self._assigned_users.includes)

    def on_lease_renewed(self) -> None:
        """``assigned_users`` is certain again."""
        self._stirred.set()

    async def drain(self) -> None:
        """Return when nothing is under way for people whom this process does not serve any more."""
        async with self._freed:
            await self._freed.wait_for(lambda: not self._dispatch.is_busy_for_others())

    def on_receipt(self, event: Receipt) -> None:
        """A client has a message: a batch is complete. Any receipt teaches that the client sends some, no marker."""
        uid, message_id = user_id(event.jid), event.message_id
        teaches = not event.is_marker and is_own(uid, message_id) and not self._receipts.sends(uid)
        if is_batch(uid, message_id) or teaches:
            self._receipts.received(uid, message_id, self._clock.wall_s(), teaches=teaches)
            self._arrived.append((uid, message_id, teaches))
            self._answered(message_id)
            self._received.set()

    def on_bounced(self, event: MessageBounced) -> None:
        """A message came back."""
        uid = user_id(event.jid)
        if is_batch(uid, event.message_id) and self._assigned_users.includes(uid):
            self._answered(event.message_id)
            self._hold(uid, event.condition)
            _log.info("bounced", user=uid, condition=event.condition)
            self._stirred.set()

    def on_presence(self, event: UserAvailable | UserUnavailable) -> None:
        """A person came online, showed a sign of life, or went offline."""
        uid = user_id(event.jid)
        now_s = self._clock.monotonic_s()
        if isinstance(event, UserUnavailable):
            self._withholding.seen(uid, is_free=False)
            self._dispatch.absent(uid)
            return
        self._dispatch.seen(uid, now_s)
        if event.is_new_client and self._receipts.are_missing(uid):
            self._dispatch.returned(uid, now_s)
        if event.is_free is not None:
            self._withholding.seen(uid, is_free=event.is_free)
        if event.is_free:
            self._dispatch.rouse(uid, now_s)
        self._stirred.set()

    # What commands change.

    def on_settings_changed(self, jid: str) -> None:
        """A person changed their settings."""
        uid = user_id(jid)
        self._recipients.forget(uid)
        self._dispatch.rouse(uid, self._clock.monotonic_s())
        self._stirred.set()

    def forget_user(self, jid: str) -> None:
        """Remember nothing of a person; inside of :meth:`pause_user`."""
        uid = user_id(jid)
        self._recipients.forget(uid)
        self._receipts.forget(uid)
        self._withholding.forget(uid)

    async def remove_contact(self, jid: str) -> None:
        """End the presence subscriptions between a person and the bot, in both directions. A room has none."""
        if jid in self._link.rooms:
            return
        ident = fresh_id(user_id(jid))
        written = stanzas.no_contact(self._link.address, jid, ident, is_account=self._link.is_account)
        await send_until_confirmed(self._link, written)

    def request_presence(self, jid: str) -> None:
        """Ask to see a person's presence, for they want us to go by it."""
        self._link.send_unconfirmed(stanzas.presence(self._link.address, jid, "subscribe"))
        self._link.send_unconfirmed(stanzas.presence(self._link.address, jid, "probe"))

    @contextlib.asynccontextmanager
    async def pause_user(self, jid: str) -> AsyncIterator[None]:
        """Hold the person's lane: nothing is claimed for them inside, and what was claimed has been written."""
        uid = user_id(jid)
        async with self._freed:
            await self._freed.wait_for(lambda: self._dispatch.enter(uid))
        try:
            yield
        finally:
            await self._release((uid,), again=())

    # Whose turn it is.

    async def _listen(self) -> None:
        """Read who has new items; examine everybody now and then, in case a wake-up was lost."""
        after, swept_s = "", -math.inf
        while True:
            try:
                uids, after = await self._store.outbox.wake(after, 5.0)
                swept = self._clock.monotonic_s() - swept_s > _SWEEP_EVERY_S
                if swept:
                    uids, swept_s = await self._store.outbox.waiting(), self._clock.monotonic_s()
                uids = await self._assigned_users.select(uids)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            if swept:  # a process that was stopped as it lost its people may have claimed something for them
                self._dispatch.doubt(uids)
            self._dispatch.queued(uids, self._clock.monotonic_s())
            self._stirred.set()

    async def _recover(self) -> None:
        """Doubt what is in flight: at a new session everybody's, else that of people who were gained."""
        while True:
            await self._unexamined.wait()
            is_new, parts = self._is_new_session, self._gained
            self._is_new_session, self._gained = False, set()
            try:
                waiting = await self._assigned_users.select(await self._store.outbox.waiting())
                gained = [] if is_new else [uid for uid in waiting if partition_of(uid) in parts]
                lost = waiting if is_new else await self._sent_before(gained)
                jids = await self._store.outbox.address(waiting if is_new else ())
            except StoreUnavailable:
                self._is_new_session = self._is_new_session or is_new
                self._gained |= parts
                await asyncio.sleep(_RETRY_S)
                continue
            now_s = self._clock.monotonic_s()
            self._dispatch.doubt(gained)
            self._dispatch.queued(gained, now_s)
            self._dispatch.recover(lost, now_s)
            if not (self._is_new_session or self._gained):
                self._unexamined.clear()
            self._stirred.set()
            for jid in filter(None, jids):
                self._link.send_unconfirmed(stanzas.presence(self._link.address, jid, "probe"))

    async def _sent_before(self, uids: Sequence[UserId]) -> list[UserId]:
        """Return for whom the server confirmed something before this session: it may have been lost with it."""
        since_s = self._session_since_s
        flying = await self._store.outbox.inflight(uids)
        return [uid for uid in uids if any(each.acked and each.claimed_s < since_s for each in flying[uid])]

    async def _pump(self) -> None:
        """Start a burst whenever it is the turn of some people."""
        while True:
            self._stirred.clear()
            await self._link.connected.wait()
            now_s = self._clock.monotonic_s()
            room = (
                len(self._bursts) < BURSTS and not self._unexamined.is_set() and self._assigned_users.is_lease_valid()
            )
            if room and (uids := self._dispatch.take(BURST_USERS, now_s)):
                burst = asyncio.create_task(self._burst(uids))
                self._bursts.add(burst)
                burst.add_done_callback(self._ended)
                continue
            wait_s = self._dispatch.next_s() - now_s if room else math.inf
            # Not wait_for: Python 3.11's swallows a cancellation that comes together with the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s == math.inf else max(wait_s, 0.001)):
                    await self._stirred.wait()

    def _ended(self, burst: asyncio.Task[None]) -> None:
        self._bursts.discard(burst)
        self._stirred.set()

    async def _burst(self, uids: Sequence[UserId]) -> None:
        """Send what these people have to get; whoever may have more to get has another turn."""
        again: Collection[UserId] = uids
        try:
            again = await self._attempt(uids)
        finally:
            await self._release(uids, again)

    async def _attempt(self, uids: Sequence[UserId]) -> Collection[UserId]:
        """Return who may have more to get. A bug that one person's batch triggers affects that person alone."""
        try:
            return await self._send(uids)
        except XmppSessionLost:
            self._dispatch.failed(uids)  # a resumed session does not begin with a recovery
            return uids
        except StoreUnavailable as error:
            _log.warning("delivery waits", reason=str(error), users=len(uids))
            self._dispatch.failed(uids)
            await asyncio.sleep(_RETRY_S)
            return uids
        except Exception:  # noqa: BLE001 - whatever it is, the others have to get their messages
            _log.exception("delivery failed", users=len(uids))
            self._dispatch.failed(uids)
            if len(uids) == 1:
                self._hold(uids[0], "internal-server-error")
            else:
                for uid in uids:
                    await self._attempt([uid])
            return uids

    async def _release(self, uids: Sequence[UserId], again: Collection[UserId]) -> None:
        now_s, more = self._clock.monotonic_s(), set(again)
        for uid in uids:
            self._dispatch.release(uid, now_s, again=uid in more)
        self._stirred.set()
        async with self._freed:
            self._freed.notify_all()

    # The steps of a burst.

    async def _send(self, uids: Sequence[UserId]) -> Collection[UserId]:
        """Send what these people have to get; return who may have more to get."""
        recipients = await self._recipients.of(uids)
        resends = await self._resends(uids, recipients)
        ready = {uid: recipients[uid] for uid in uids if uid not in resends and not self._dispatch.is_unsure(uid)}
        choices = await self._filter(ready)
        ready = await self._hold_back(ready, choices)
        claimed = await self._claim(ready, choices)
        batches = resends | {uid: (batch,) for uid, batch in (await self._corrections.made(claimed)).items()}
        messages, empty = await self._render(batches, recipients)
        accepted = await self._write(messages)
        await self._record(accepted, empty)
        unexamined = (uid for uid, choice in choices.items() if choice.more)
        return {*resends, *unexamined, *(uid for uid, batch in claimed.items() if batch.more)}

    async def _resends(
        self, uids: Sequence[UserId], recipients: Mapping[UserId, Recipient]
    ) -> dict[UserId, Sequence[Batch]]:
        """Return the batches in flight that have to be sent again now, oldest first."""
        found: dict[UserId, Sequence[Batch]] = {}
        unsure = [uid for uid in uids if self._dispatch.is_unsure(uid)]
        if not unsure:
            return found
        wall_s = self._clock.wall_s()
        in_flight = await self._store.outbox.inflight(unsure)
        rests_s = await self._resends_rest_s(in_flight, recipients)
        for uid, flying in in_flight.items():
            is_hopeless = any(self._dispatch.is_hopeless(uid, batch.claimed_s, wall_s) for batch in flying)
            if is_hopeless and uid not in rests_s:
                await self._suspend(uid, flying)
                flying = []  # noqa: PLW2901 - they are dead letters now
            self._receipts.reset(uid, [batch.message_id for batch in flying if batch.acked])
            if uid in rests_s:
                self._dispatch.rest(uid, self._clock.monotonic_s() + rests_s[uid])
            elif again := self._dispatch.resend(uid, flying, self._clock.monotonic_s()):
                found[uid] = again
                _log.info("messages sent again", user=uid, count=len(again))
                await self._store.outbox.retried(uid, [batch.message_id for batch in again])
        return found

    async def _resends_rest_s(
        self, in_flight: Mapping[UserId, Sequence[Batch]], recipients: Mapping[UserId, Recipient]
    ) -> Mapping[UserId, float]:
        """Return who wants nothing again now of what the server confirmed, and for how many seconds.

        Digests do not count: what is in flight is one.
        """
        user_settings, since_s = {}, {}
        for uid, flying in in_flight.items():
            acked = [batch for batch in flying if batch.acked]
            own = msgspec.structs.replace(recipients[uid].user_settings, digest=None)
            if acked and own.has_delivery_delays and self._dispatch.doubts_confirmed(uid):
                user_settings[uid], since_s[uid] = own, acked[0].claimed_s
        return await self._withholding.rests_s(user_settings, since_s)

    async def _suspend(self, uid: UserId, flying: Sequence[Batch]) -> None:
        """Pause all subscriptions of a person whom nothing has reached for 14 days, until they write to us.

        Batches in flight become dead letters; their news count as withheld, and are told in brief after the pause.
        """
        (jid,) = await self._store.outbox.address([uid])
        if jid:
            mine = await self._store.subscriptions.of_user(jid)
            await self._store.pauses.rest(jid, [held.channel for held in mine])
            _log.info("unreachable: nothing reached them for 14 days", user=uid)
        for batch in flying:
            await self._store.outbox.dead(uid, batch.message_id, "came back for 14 days")

    async def _filter(self, ready: Mapping[UserId, Recipient]) -> dict[UserId, Choice]:
        """Apply mutes, filters and intervals; have the dispatcher return to items that may be sent later."""
        wall_s = self._clock.wall_s()
        choices = await self._withholding.choices(ready, wall_s)
        for uid, choice in choices.items():
            self._dispatch.later(uid, self._clock.monotonic_s() + choice.later_s - wall_s)
        return choices

    async def _hold_back(
        self, ready: Mapping[UserId, Recipient], choices: Mapping[UserId, Choice]
    ) -> dict[UserId, Recipient]:
        """Return the people to whom something may be sent now; the others' quiet hours or digests are waited for."""
        waits = {uid: each.user_settings for uid, each in ready.items() if each.user_settings.has_delivery_delays}
        rests_s = await self._withholding.rests_s(waits, {uid: choice.since_s for uid, choice in choices.items()})
        for uid, rest_s in rests_s.items():
            self._dispatch.rest(uid, self._clock.monotonic_s() + rest_s)
        waiting = {uid for uid, choice in choices.items() if choice.withheld and not choice.free}
        return {uid: each for uid, each in ready.items() if uid not in rests_s and uid not in waiting}

    async def _claim(
        self, ready: Mapping[UserId, Recipient], choices: Mapping[UserId, Choice]
    ) -> Mapping[UserId, Batch]:
        """Move each person's oldest items into a batch; the store leaves out what another channel has told them."""
        decided = {uid: ClaimRules(choice.withheld, frozenset(choice.spaced)) for uid, choice in choices.items()}
        return await self._store.outbox.claim(list(ready), MAX_ITEMS, self._clock.wall_s(), decided)

    async def _render(
        self, batches: Mapping[UserId, Sequence[Batch]], recipients: Mapping[UserId, Recipient]
    ) -> tuple[list[_Message], list[tuple[UserId, MessageId]]]:
        """Return the messages of these batches, and the batches that have nothing to tell any more."""
        jids = dict(zip(batches, await self._store.outbox.address(list(batches)), strict=True))
        messages, empty = [], []
        for uid, own in batches.items():
            user_settings, preferences = recipients[uid].user_settings, recipients[uid].preferences
            looks = await self._bodies.looks(uid, own, preferences, user_settings.zone)
            asked = self._receipts.sends(uid)
            for batch in own:
                body = await self._bodies.of(batch, user_settings.effective_language, looks)
                if body.xml:
                    stanza = self._stanza(jids[uid], batch, body.xml, asked=asked)
                    messages.append(_Message(uid, batch, body, stanza, asked))
                else:
                    empty.append((uid, batch.message_id))
        return messages, empty

    def _stanza(self, jid: str, batch: Batch, content: str, *, asked: bool) -> str:
        if batch.replaces:
            content += stanzas.replace(batch.replaces)
        if jid in self._link.rooms:
            return stanzas.message(self._link.address, jid, batch.message_id, content, kind="groupchat")
        if asked:
            content += stanzas.REQUEST
        if batch.acked:
            content += stanzas.delay(self._link.address, batch.claimed_s)
        return stanzas.message(self._link.address, jid, batch.message_id, content)

    async def _write(self, messages: Sequence[_Message]) -> list[_Message]:
        """Send messages; return those that the server has, unless they came back or have their receipts already."""
        if not self._assigned_users.is_lease_valid():
            raise XmppSessionLost("Another bot may have taken these people over.")
        for message in messages:
            self._dispatch.sent(message.uid, len(message.batch.items), self._clock.monotonic_s())
            self._receipts.sending(message.batch.message_id, message.body.traces, self._clock.wall_s())
            self._under_way[message.batch.message_id] = False
        try:
            await self._link.send([message.stanza for message in messages])
            accepted = [message for message in messages if not self._under_way[message.batch.message_id]]
        finally:
            for message in messages:
                del self._under_way[message.batch.message_id]
        now_s = self._clock.wall_s()
        for message in messages:
            batch = message.batch
            for trace in message.body.traces:
                TRACING.record_step(trace, "sent", batch.claimed_s, message=batch.message_id)
            if not batch.acked and not batch.replaces:  # of a correction, most was detected long ago
                for detected_s in message.body.detected_s:
                    DELIVERY_DELAY.observe(max(0.0, now_s - detected_s))
        return accepted

    async def _record(self, accepted: Sequence[_Message], empty: Sequence[tuple[UserId, MessageId]]) -> None:
        """Complete batches, or await the receipts that were asked for."""
        acked, done = [], list(empty)
        for message in accepted:
            uid, batch = message.uid, message.batch
            self._dispatch.accepted(uid)
            tries = batch.tries + 1 if batch.acked else 1
            is_last = tries >= MAX_SENDS and self._dispatch.seen_online(uid)
            given_up = None
            if message.asked and not is_last:
                given_up = self._receipts.expect(uid, batch.message_id, again=batch.acked)
            if given_up is None:
                self._receipts.drop(uid, batch.message_id)
                done.append((uid, batch.message_id))
            else:
                acked.append((uid, batch.message_id))
                done += [(uid, old) for old in given_up]
        await self._completed(acked=acked, done=done)

    # Receipts and completion.

    async def _complete(self) -> None:
        """Complete the batches whose receipts came; store who sends receipts."""
        while True:
            await self._received.wait()
            self._received.clear()
            arrived, self._arrived = self._arrived, []
            await self._completed(received=[(uid, mid) for uid, mid, _ in arrived if is_batch(uid, mid)])
            now_s = self._clock.monotonic_s()
            for uid, _, _ in arrived:
                self._dispatch.settled(uid, now_s)
            self._stirred.set()
            with contextlib.suppress(StoreUnavailable):  # the next receipt teaches it again after a restart
                await self._store.users.mark_receipts(list({uid for uid, _, teaches in arrived if teaches}))

    async def _completed(self, **pairs: Sequence[tuple[UserId, MessageId]]) -> None:
        """Complete batches, however long Redis is away: to forget that one was sent would mean to send it twice."""
        while True:
            try:
                await self._store.outbox.completed(**pairs)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _answered(self, message_id: MessageId) -> None:
        if message_id in self._under_way:
            self._under_way[message_id] = True

    def _hold(self, uid: UserId, condition: str) -> None:
        chance = random.random()  # noqa: S311 - it only spreads retries
        self._dispatch.bounced(uid, condition, self._clock.monotonic_s(), chance)

    async def _count(self) -> None:
        """Keep the gauge of how many people wait for something."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                OUTBOX_USERS.set(await self._store.outbox.depth())
            await asyncio.sleep(_COUNT_EVERY_S)
