"""Outbox → recipients: does what :mod:`bots.dispatch` decides, for about a hundred people at a time.

A batch has its message id before it is sent and keeps it. It is forgotten (``done``) when its receipt
comes, for people whose client sends receipts; for others when the server has it. Whatever happens
before that, a later session, or the bot that takes over, finds it in flight and sends it again; and so
do we when the person comes online with a client that was not there when it was sent. What they see twice
has the same id, and says when it was sent first.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from bots import stanzas
from bots.adopting import Adopting
from bots.bodies import Bodies
from bots.charges import Charges
from bots.completing import Sent, completed, count_waiting
from bots.corrections import Corrections
from bots.dispatch import Dispatch
from bots.ids import is_batch, is_own
from bots.knowing import Knowing, Wishes
from bots.link import Absent, Bounced, Link, LinkLost, Receipt, Seen
from bots.looks import looks_of
from bots.parting import parted
from bots.resting import Resting
from bots.tasks import end, together
from bots.tracks import Tracks
from bots.unreachable import rest_unreachable
from bots.withholding import Withholding
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.store import Store
from service.store.keys import user_id
from service.store.outbox import Batch, MessageId

BURST_USERS: Final = 100
"""People per burst: one Redis pipeline to claim, one stretch of stanzas, one pipeline to complete."""
BURSTS: Final = 12
"""Bursts at once: while some wait for the server, others claim and render, so that it never waits for us."""
MOST_ITEMS: Final = 60
"""Versions that are coalesced into one message."""
MOST_TRIES: Final = 3
"""How often a batch is sent whose receipt does not come although the person is there: a client may send none."""

_SWEEP_EVERY_S = 60.0
_RETRY_S = 0.5

_log = structlog.get_logger()


class Delivery:
    """One bot's delivery. :meth:`run` drives it; the other methods tell it what comes in and never wait."""

    def __init__(self, store: Store, link: Link, clock: Clock, charges: Charges, messages_per_s: float) -> None:
        """Deliver what ``store`` holds for ``charges`` through ``link``; nothing starts before :meth:`run`."""
        self._charges = charges
        self._store = store
        self._link = link
        self._clock = clock
        self._dispatch = Dispatch(messages_per_s)
        self._stirred = asyncio.Event()
        self._freed = asyncio.Condition()
        self._bursts: set[asyncio.Task[None]] = set()
        self._renewed = asyncio.Event()
        self._receipts: list[tuple[UserId, MessageId, bool]] = []  # whether it teaches that somebody sends some
        self._tracks = Tracks()
        self._received = asyncio.Event()
        self._under_way: dict[MessageId, bool] = {}  # whether it came back, or has its receipt, before its burst ended
        self._known = Knowing(store)
        self._bodies = Bodies(store.channels)
        self._resting = Resting(store.outbox, link, clock)
        self._corrections = Corrections(store)
        self._adopting = Adopting(store.outbox, charges, clock)
        self._withholding = Withholding(store)

    async def run(self) -> None:
        """Deliver until cancelled; then let the bursts under way come to their end, for at most 2 s."""
        try:
            looking = (self._listen(), self._recover(), self._adopt())
            await together(self._complete(), *looking, self._pump(), count_waiting(self._store.outbox))
        finally:
            if self._bursts:
                await asyncio.wait(self._bursts, timeout=2.0)
            await end(*tuple(self._bursts))

    # What comes in.

    def started(self) -> None:
        """A session began that continues no earlier one."""
        self._adopting.started()
        self._resting.started()
        self._renewed.set()

    def gained(self, parts: frozenset[int]) -> None:
        """There are more people whom we serve; what is in flight for them was begun by another bot."""
        self._adopting.gained(parts)

    def lost(self) -> None:
        """There are fewer people whom we serve: what we know of the others will soon be old."""
        self._known.keep(self._charges.holds)

    async def finished(self) -> None:
        """Return when nothing is under way for people whom we do not serve any more."""
        async with self._freed:
            await self._freed.wait_for(lambda: all(map(self._charges.holds, self._dispatch.busy())))

    def receipt(self, event: Receipt) -> None:
        """A client has a message: a batch is finished. Any receipt teaches that it sends some; no marker does."""
        uid = user_id(event.jid)
        teaches = not event.is_marker and is_own(uid, event.message_id) and not self._known.receipts.get(uid)
        if is_batch(uid, event.message_id) or teaches:
            self._known.answers(uid, event.message_id)
            self._receipts.append((uid, event.message_id, teaches))
            self._answered(event.message_id)
            self._tracks.received(event.message_id, self._clock.wall_s())
            self._received.set()

    def bounced(self, event: Bounced) -> None:
        """A message came back."""
        uid = user_id(event.jid)
        if is_batch(uid, event.message_id) and self._charges.holds(uid):
            self._answered(event.message_id)
            self._hold(uid, event.condition)
            _log.info("bounced", user=uid, condition=event.condition)
            self._stirred.set()

    def presence(self, event: Seen | Absent) -> None:
        """A person came online, showed a sign of life, or went offline."""
        uid = user_id(event.jid)
        now_s = self._clock.monotonic_s()
        if isinstance(event, Seen):
            self._dispatch.seen(uid, now_s)
            if event.is_new_client and self._known.lacks_receipts(uid):
                self._dispatch.returned(uid, now_s)
            if event.is_free is not None:
                self._resting.seen(uid, is_free=event.is_free)
            if event.is_free:
                self._dispatch.rouse(uid, now_s)
            self._stirred.set()
        else:
            self._resting.seen(uid, is_free=False)
            self._dispatch.absent(uid)

    def changed(self, jid: str) -> None:
        """A person has other habits or preferences now."""
        uid = user_id(jid)
        self._known.changed(uid)
        self._dispatch.rouse(uid, self._clock.monotonic_s())
        self._stirred.set()

    def forget(self, jid: str) -> None:
        """Remember nothing of a person; inside of :meth:`paused`."""
        uid = user_id(jid)
        self._known.forget(uid)
        self._resting.forget(uid)
        self._tracks.forget(uid)

    async def part(self, jid: str) -> None:
        """Be no contact of a person's any more; see :func:`~bots.parting.parted`."""
        await parted(self._link, jid)

    def befriend(self, jid: str) -> None:
        """Ask to see a person's presence, for they want us to go by it."""
        self._link.hint(stanzas.presence(self._link.address, jid, "subscribe"))
        self._link.hint(stanzas.presence(self._link.address, jid, "probe"))

    @contextlib.asynccontextmanager
    async def paused(self, jid: str) -> AsyncIterator[None]:
        """Hold the person's lane: nothing is claimed for them inside, and what was claimed has been written."""
        uid = user_id(jid)
        async with self._freed:
            await self._freed.wait_for(lambda: self._dispatch.enter(uid))
        try:
            yield
        finally:
            await self._release((uid,), again=())

    # What goes out.

    async def _listen(self) -> None:
        """Hear who has something new; look over everybody now and then, should a wake-up ever be lost."""
        after, swept_s = "", -math.inf
        while True:
            try:
                uids, after = await self._store.outbox.wake(after, 5.0)
                swept = self._clock.monotonic_s() - swept_s > _SWEEP_EVERY_S
                if swept:
                    uids, swept_s = await self._store.outbox.waiting(), self._clock.monotonic_s()
                uids = await self._charges.among(uids)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            if swept:  # a bot that was stopped as it lost its people may have claimed something for them
                self._dispatch.doubt(uids)
            self._dispatch.queued(uids, self._clock.monotonic_s())
            self._stirred.set()

    async def _recover(self) -> None:
        """At each new session, doubt every batch in flight, and ask after those people's presence."""
        while True:
            await self._renewed.wait()
            try:
                waiting = await self._charges.among(await self._store.outbox.waiting())
                jids = await self._store.outbox.address(waiting)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            self._renewed.clear()
            self._dispatch.recover(waiting, self._clock.monotonic_s())
            self._stirred.set()
            for jid in filter(None, jids):
                self._link.hint(stanzas.presence(self._link.address, jid, "probe"))

    async def _adopt(self) -> None:
        """Look at what is in flight for people whom we have not served before."""
        while True:
            lost, others = await self._adopting.adopted()
            now_s = self._clock.monotonic_s()
            self._dispatch.recover(lost, now_s)
            self._dispatch.doubt([*lost, *others])
            self._dispatch.queued(others, now_s)
            self._stirred.set()

    def _taken(self, now_s: float) -> list[UserId]:
        """Return our people whose turn it is, their lanes taken."""
        taken = self._dispatch.take(BURST_USERS, now_s)
        for uid in taken:
            if not self._charges.holds(uid):
                self._dispatch.drop(uid)
        return [uid for uid in taken if self._charges.holds(uid)]

    async def _pump(self) -> None:
        while True:
            self._stirred.clear()
            await self._link.up.wait()
            now_s = self._clock.monotonic_s()
            room = len(self._bursts) < BURSTS and not self._renewed.is_set() and self._charges.are_certain()
            if room and (uids := self._taken(now_s)):
                burst = asyncio.create_task(self._burst(uids))
                self._bursts.add(burst)
                burst.add_done_callback(self._ended)
                continue
            wait_s = self._dispatch.next_s() - now_s if room else math.inf
            # Not wait_for: Python 3.11's swallows a cancellation that comes together with the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s == math.inf else max(wait_s, 0.001)):
                    await self._stirred.wait()

    def certain(self) -> None:
        """We can be sure of our people again."""
        self._stirred.set()

    def _ended(self, burst: asyncio.Task[None]) -> None:
        self._bursts.discard(burst)
        self._stirred.set()

    async def _burst(self, uids: Sequence[UserId]) -> None:
        """Send what these people have to get; whoever may have more to get is looked at again."""
        again: Iterable[UserId] = uids
        try:
            again = await self._attempt(uids)
        finally:
            await self._release(uids, again)

    async def _attempt(self, uids: Sequence[UserId]) -> Iterable[UserId]:
        """Return who may have more to get. A bug that one person's batch sets off stays theirs."""
        try:
            return await self._send(uids)
        except LinkLost:
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

    async def _send(self, uids: Sequence[UserId]) -> Iterable[UserId]:
        """Return who may have more to get."""
        wishes = await self._known.learn(uids)
        again = await self._resends({uid: wishes[uid] for uid in uids if self._dispatch.is_unsure(uid)})
        clear = [uid for uid in uids if uid not in again and not self._dispatch.is_unsure(uid)]
        wall_s = self._clock.wall_s()
        choices = await self._withholding.of({uid: wishes[uid] for uid in clear}, wall_s)
        for uid, choice in choices.items():
            self._dispatch.later(uid, self._clock.monotonic_s() + choice.later_s - wall_s)
        waits = {uid: wishes[uid].habits for uid in clear if wishes[uid].habits.waits}
        resting = await self._resting.of(waits, {uid: choice.since_s for uid, choice in choices.items()})
        for uid, rest_s in resting.items():
            self._dispatch.rest(uid, self._clock.monotonic_s() + rest_s)
        waiting = {uid for uid, choice in choices.items() if choice.waits}
        clear = [uid for uid in clear if uid not in resting and uid not in waiting]
        decided = {uid: choice.decided for uid, choice in choices.items()}
        claimed = await self._store.outbox.claim(clear, MOST_ITEMS, wall_s, decided)
        more = {uid for uid, choice in choices.items() if choice.more}
        more.update(uid for uid, batch in claimed.items() if batch.more)
        fresh = await self._corrections.made(claimed)
        batches = again | {uid: (batch,) for uid, batch in fresh.items()}
        jids = dict(zip(batches, await self._store.outbox.address(list(batches)), strict=True))
        sent, written, empty = [], [], []
        for uid, own in batches.items():
            habits = wishes[uid].habits
            looks = await looks_of(self._store.subscriptions, uid, own, wishes[uid].preferences, habits.zone)
            asked = self._known.receipts.get(uid, False)
            request = stanzas.REQUEST if asked and jids[uid] not in self._link.rooms else ""
            for batch in own:
                body = await self._bodies.of(batch, habits.speaks, looks)
                if not body.xml:
                    empty.append((uid, batch.message_id))
                    continue
                content = body.xml + (stanzas.replace(batch.replaces) if batch.replaces else "") + request
                kind = "groupchat" if jids[uid] in self._link.rooms else "chat"
                if batch.acked and kind == "chat":
                    content += stanzas.delay(self._link.address, batch.claimed_s)
                written.append(stanzas.message(self._link.address, jids[uid], batch.message_id, content, kind=kind))
                sent.append(Sent(uid, batch, body, asked))
                self._dispatch.sent(uid, len(batch.items), self._clock.monotonic_s())
        await self._hand_over(written, sent)
        await completed(self._store.outbox, done=empty)
        return again.keys() | more

    async def _hand_over(self, written: Sequence[str], sent: Sequence[Sent]) -> None:
        """Send, and complete what the server took and did not send back: await the receipts that were asked for."""
        if not self._charges.are_certain():
            raise LinkLost("Another bot may have taken these people over.")
        self._under_way.update((one.batch.message_id, False) for one in sent)
        self._tracks.sending([(one.batch, one.body) for one in sent], self._clock.wall_s())
        try:
            await self._link.send(written)
            kept = [one for one in sent if not self._under_way[one.batch.message_id]]
        finally:
            for one in sent:
                del self._under_way[one.batch.message_id]
        self._tracks.sent([(one.batch, one.body) for one in sent], self._clock.wall_s())
        receipted: list[tuple[UserId, MessageId]] = []
        finished: list[tuple[UserId, MessageId]] = []
        for one in kept:
            uid, pair = one.uid, (one.uid, one.batch.message_id)
            self._dispatch.accepted(uid)
            tries = one.batch.tries + 1 if one.batch.acked else 1
            last_time = tries >= MOST_TRIES and self._dispatch.has_met(uid)
            if one.asked and not last_time and (one.batch.acked or self._known.is_awaited(uid)):
                receipted.append(pair)
                finished.extend((uid, old) for old in self._known.sent(uid, one.batch.message_id))
            else:
                finished.append(pair)
                self._known.finished(uid, one.batch.message_id)
        await completed(self._store.outbox, acked=receipted, done=finished)

    async def _resends(self, wishes: Mapping[UserId, Wishes]) -> dict[UserId, Sequence[Batch]]:
        found: dict[UserId, Sequence[Batch]] = {}
        if not wishes:
            return found
        wall_s = self._clock.wall_s()
        in_flight = await self._store.outbox.inflight(list(wishes))
        resting = await self._resting_from(in_flight, wishes)
        for uid, flying in in_flight.items():
            if uid in resting:
                self._known.awaits(uid, [batch.message_id for batch in flying if batch.acked])
                self._dispatch.rest(uid, self._clock.monotonic_s() + resting[uid])
                continue
            hopeless = any(self._dispatch.is_hopeless(uid, batch.claimed_s, wall_s) for batch in flying)
            if hopeless:
                await rest_unreachable(self._store, uid, flying)
            left = () if hopeless else flying
            self._known.awaits(uid, [batch.message_id for batch in left if batch.acked])
            if again := self._dispatch.resend(uid, left, self._clock.monotonic_s()):
                found[uid] = again
                _log.info("messages sent again", user=uid, count=len(again))
                await self._store.outbox.retried(uid, [batch.message_id for batch in again])
        return found

    async def _resting_from(
        self, in_flight: Mapping[UserId, Sequence[Batch]], wishes: Mapping[UserId, Wishes]
    ) -> Mapping[UserId, float]:
        """Return who wants nothing now of what they were sent before, and for how many seconds.

        Digests are no reason: what is in flight is one.
        """
        habits, since_s = {}, {}
        for uid, flying in in_flight.items():
            acked = [batch for batch in flying if batch.acked]
            own = msgspec.structs.replace(wishes[uid].habits, digest=None)
            if acked and own.waits and self._dispatch.is_forsaken(uid):
                habits[uid], since_s[uid] = own, acked[0].claimed_s
        return await self._resting.of(habits, since_s)

    async def _complete(self) -> None:
        """Forget what has its receipt; note who sends receipts."""
        while True:
            await self._received.wait()
            self._received.clear()
            arrived, self._receipts = self._receipts, []
            new = {uid for uid, _, teaches in arrived if teaches}
            self._known.receipts.update(dict.fromkeys(new, True))
            batches = [(uid, mid) for uid, mid, _ in arrived if is_batch(uid, mid)]
            await completed(self._store.outbox, received=batches)
            now_s = self._clock.monotonic_s()
            for uid, _, _ in arrived:
                self._dispatch.settled(uid, now_s)
            self._stirred.set()
            with contextlib.suppress(StoreUnavailable):  # the next receipt teaches it again after a restart
                await self._store.users.mark_receipts(list(new))

    def _answered(self, message_id: MessageId) -> None:
        if message_id in self._under_way:
            self._under_way[message_id] = True

    def _hold(self, uid: UserId, condition: str) -> None:
        chance = random.random()  # noqa: S311 - it only spreads retries
        self._dispatch.bounced(uid, condition, self._clock.monotonic_s(), chance)

    async def _release(self, uids: Sequence[UserId], again: Iterable[UserId]) -> None:
        now_s, more = self._clock.monotonic_s(), set(again)
        for uid in uids:
            self._dispatch.release(uid, now_s, again=uid in more)
        self._stirred.set()
        async with self._freed:
            self._freed.notify_all()
