"""Sender of notifications: claims, renders, sends and records batches for several users at a time.

To *claim* a batch is to move items from a user's outbox into a new batch, which gets a message id. A batch is
*complete* when its receipt arrives. If the user's client sends no receipts, the batch is complete when the XMPP server
has acknowledged it. Between claim and completion, a batch is *in flight*.

Batches in flight may be lost when a session or a process ends. The next session, or the process that takes over, reads
these batches from the store and sends them again under the same ids (guarantee I2). Batches in flight are also sent
again when the user comes online with an additional client.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from bots.cluster.partitions import AssignedUsers
from bots.delivery.batch_renderer import BatchRenderer, Body
from bots.delivery.bounce_backoff import suspend_unreachable_user
from bots.delivery.corrections import CorrectionFinder
from bots.delivery.mutes_and_filters import ItemSelector
from bots.delivery.notification_intervals import Selection
from bots.delivery.receipt_tracker import ReceiptTracker
from bots.delivery.recipient_availability import RecipientAvailability
from bots.delivery.recipient_cache import Recipient, RecipientCache
from bots.delivery.scheduler import DeliveryScheduler
from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender, XmppSessionLost
from bots.xmpp.message_ids import image_id
from service.asyncio_tasks import retry_while_unavailable
from service.clock import Clock
from service.model import UserId
from service.observability.metrics import DELIVERY_DELAY
from service.observability.tracing import TRACING
from service.store import Store
from service.store.delivery.outbox import ANNOUNCEMENTS, Batch, ClaimRules, MessageId

MAX_ITEMS: Final = 60
"""Maximum number of outbox items that are combined into one message."""
MAX_SENDS: Final = 3
"""Maximum number of times that a batch without a receipt is sent to an online user. After that it counts as complete,
because some clients send no receipts."""

_log = structlog.get_logger()


class _Message(msgspec.Struct, frozen=True):
    """A message that delivers a batch of notifications: its content, and the stanza in which it is sent.

    ``requests_receipt`` states whether the stanza requests a receipt (XEP-0184). ``image_stanza`` is a message with the
    entry's image, or "".
    """

    user_id: UserId
    batch: Batch
    body: Body
    stanza: str
    requests_receipt: bool
    image_stanza: str


class BatchSender:
    """Sends batches of notifications to users. The caller must hold the users' locks in the scheduler."""

    def __init__(
        self, store: Store, xmpp: XmppSender, clock: Clock, assigned_users: AssignedUsers, scheduler: DeliveryScheduler
    ) -> None:
        """Create a sender that claims batches from ``store`` and sends them through ``xmpp``."""
        self._store = store
        self._xmpp = xmpp
        self._clock = clock
        self._assigned_users = assigned_users
        self._scheduler = scheduler
        self.recipients = RecipientCache(store)
        self.receipts = ReceiptTracker()
        self.availability = RecipientAvailability(store, xmpp, clock)
        self._selector = ItemSelector(store)
        self._corrections = CorrectionFinder(store)
        self._renderer = BatchRenderer(store)
        self._has_response: dict[MessageId, bool] = {}  # message being sent: has bounced or has its receipt

    async def send(self, user_ids: Sequence[UserId]) -> Collection[UserId]:
        """Send these users the notifications that are due; return the users for whom more may be waiting.

        Users on a blocked domain are sent nothing, and their queued items are dropped. Raises StoreUnavailable if the
        store does not respond, and XmppSessionLost if the XMPP session ends.
        """
        blocked = await self._store.users.users_of_blocked_domains(user_ids)
        if blocked:
            await self._store.outbox.drop_queued(list(blocked))
        user_ids = [user_id for user_id in user_ids if user_id not in blocked]
        recipients = await self.recipients.get(user_ids)
        resends = await self._find_resends(user_ids, recipients)
        ready = {
            user_id: recipients[user_id]
            for user_id in user_ids
            if user_id not in resends and not self._scheduler.needs_recovery(user_id)
        }
        wall_s, now_s = self._clock.wall_s(), self._clock.monotonic_s()
        selections = await self._selector.select(ready, wall_s)
        for user_id, selection in selections.items():
            self._scheduler.set_next_item(user_id, now_s + selection.next_due_s - wall_s)
        ready = await self._select_available(ready, selections)
        rules = {
            user_id: ClaimRules(selection.suppressions, frozenset(selection.interval_channels), selection.after)
            for user_id, selection in selections.items()
        }
        claimed = await self._store.outbox.claim(list(ready), MAX_ITEMS, self._clock.wall_s(), rules)
        corrected = await self._corrections.correct(claimed)
        batches = resends | {user_id: (batch,) for user_id, batch in corrected.items()}
        messages, empty = await self._render(batches, recipients)
        accepted = await self._write(messages)
        await self._record(accepted, empty)
        unexamined = (user_id for user_id, selection in selections.items() if selection.is_full or selection.is_partial)
        return {*resends, *unexamined, *(user_id for user_id, batch in claimed.items() if batch.has_more)}

    def on_response(self, message_id: MessageId) -> None:
        """Record that a message has bounced, or that its receipt has arrived.

        If :meth:`send` is still awaiting the server's acknowledgement of this message, it will not record the message
        as accepted.
        """
        if message_id in self._has_response:
            self._has_response[message_id] = True

    async def complete(self, **pairs: Sequence[tuple[UserId, MessageId]]) -> None:
        """Record the progress of batches in the store; if the store is unavailable, wait and retry.

        Without the retry, a batch could be sent twice, because the store would not know that it was sent. Each keyword
        argument is a list of pairs (user id, message id):

        - ``acked``: batches that the server has acknowledged and whose receipts are awaited.
        - ``done``: batches that are complete without a receipt.
        - ``received``: batches whose receipts have arrived.
        """
        await retry_while_unavailable(lambda: self._store.outbox.complete(**pairs))

    # Batches in flight.

    async def _find_resends(
        self, user_ids: Sequence[UserId], recipients: Mapping[UserId, Recipient]
    ) -> dict[UserId, Sequence[Batch]]:
        """Return the batches in flight that must be sent again now, for each user who has any.

        A batch is in flight if it was sent but is not complete. The batches of a user are in order, oldest first.
        """
        resends: dict[UserId, Sequence[Batch]] = {}
        recovering = [user_id for user_id in user_ids if self._scheduler.needs_recovery(user_id)]
        if not recovering:
            return resends
        wall_s = self._clock.wall_s()
        in_flight = await self._store.outbox.in_flight(recovering)
        remaining_s = await self._resend_delays_s(in_flight, recipients)
        for user_id, batches in in_flight.items():
            is_undeliverable = any(
                self._scheduler.is_undeliverable(user_id, batch.claimed_s, wall_s) for batch in batches
            )
            if is_undeliverable and user_id not in remaining_s:
                await suspend_unreachable_user(self._store, user_id, batches)
                batches = []  # noqa: PLW2901 - they are dead letters now
            self.receipts.reset(user_id, [batch.message_id for batch in batches if batch.acked])
            if user_id in remaining_s:
                self._scheduler.defer(user_id, self._clock.monotonic_s() + remaining_s[user_id])
            elif again := self._scheduler.recover(user_id, batches, self._clock.monotonic_s()):
                resends[user_id] = again
                _log.info("messages resent", user=user_id, count=len(again))
                await self._store.outbox.count_retry(user_id, [batch.message_id for batch in again])
        return resends

    async def _resend_delays_s(
        self, in_flight: Mapping[UserId, Sequence[Batch]], recipients: Mapping[UserId, Recipient]
    ) -> Mapping[UserId, float]:
        """Return how many seconds to wait before resending acknowledged batches, for each user who must wait.

        Resends are delayed by quiet hours, and while the user is absent. Digests do not delay resends, because the
        batches waited for the digest before they were first sent. ``in_flight`` maps users to the batches that were
        sent but are not complete.
        """
        user_settings, since_s = {}, {}
        for user_id, batches in in_flight.items():
            acked = [batch for batch in batches if batch.acked]
            own = msgspec.structs.replace(recipients[user_id].user_settings, digest=None)
            if acked and own.has_delivery_delays and self._scheduler.needs_full_recovery(user_id):
                user_settings[user_id], since_s[user_id] = own, acked[0].claimed_s
        return await self.availability.remaining_s(user_settings, since_s)

    # New batches.

    async def _select_available(
        self, ready: Mapping[UserId, Recipient], selections: Mapping[UserId, Selection]
    ) -> dict[UserId, Recipient]:
        """Return the users in ``ready`` to whom new batches can be sent now.

        Users without a due item are left out. Users whose quiet hours, digests or presence do not allow messages now
        are also left out; their deliveries are deferred. ``selections`` states which items may be sent now, for each
        user with mutes, filters, notification intervals or digests of folders.
        """
        user_settings = {
            user_id: own for user_id, each in ready.items() if (own := each.common_settings).has_delivery_delays
        }
        since_s = {user_id: selection.since_s for user_id, selection in selections.items()}
        remaining_s = await self.availability.remaining_s(user_settings, since_s)
        for user_id, own_s in remaining_s.items():
            self._scheduler.defer(user_id, self._clock.monotonic_s() + own_s)
        without_due = {
            user_id for user_id, selection in selections.items() if selection.suppressions and not selection.due_count
        }
        return {
            user_id: each
            for user_id, each in ready.items()
            if user_id not in remaining_s and user_id not in without_due
        }

    async def _render(
        self, batches: Mapping[UserId, Sequence[Batch]], recipients: Mapping[UserId, Recipient]
    ) -> tuple[list[_Message], list[tuple[UserId, MessageId]]]:
        """Render these batches; return the messages, and the pairs (user id, message id) of batches without content."""
        jids = dict(zip(batches, await self._store.users.jids(list(batches)), strict=True))
        messages, empty = [], []
        for user_id, own in batches.items():
            user_settings, preferences = recipients[user_id].user_settings, recipients[user_id].preferences
            presentations = await self._renderer.presentations(user_id, own, preferences, user_settings.zone)
            requests_receipt = self.recipients.sends_receipts(user_id)
            for batch in own:
                body = await self._renderer.body(batch, user_settings.effective_language, presentations)
                is_declined = batch.items[0].channel == ANNOUNCEMENTS and not user_settings.announcements
                if body.xml and not is_declined:
                    stanza = self._stanza(jids[user_id], batch, body.xml, requests_receipt=requests_receipt)
                    has_image = body.image and not batch.acked and not batch.replaces
                    image_stanza = self._image_stanza(jids[user_id], batch, body.image) if has_image else ""
                    messages.append(_Message(user_id, batch, body, stanza, requests_receipt, image_stanza))
                else:
                    empty.append((user_id, batch.message_id))
        return messages, empty

    def _image_stanza(self, jid: str, batch: Batch, url: str) -> str:
        kind = "groupchat" if jid in self._xmpp.rooms else "chat"
        content, message_id = stanzas.shared_file(url), image_id(batch.message_id)
        return stanzas.message(self._xmpp.address, jid, message_id, content, kind=kind)

    def _stanza(self, jid: str, batch: Batch, content: str, *, requests_receipt: bool) -> str:
        if batch.replaces:
            content += stanzas.correction(batch.replaces)
        if jid in self._xmpp.rooms:
            return stanzas.message(self._xmpp.address, jid, batch.message_id, content, kind="groupchat")
        if requests_receipt:
            content += stanzas.RECEIPT_REQUEST
        if batch.acked:
            content += stanzas.delay(self._xmpp.address, batch.claimed_s)
        return stanzas.message(self._xmpp.address, jid, batch.message_id, content)

    async def _write(self, messages: Sequence[_Message]) -> list[_Message]:
        """Send ``messages`` and wait until the server acknowledges them; return the messages to record as accepted.

        Messages that have bounced, or whose receipt has already arrived, are left out. Raises XmppSessionLost if the
        session ends, or if another process may already be serving these users.
        """
        if not self._assigned_users.is_lease_valid():
            raise XmppSessionLost("Another bot may have taken these people over.")
        for message in messages:
            self._scheduler.on_sending(message.user_id, len(message.batch.items), self._clock.monotonic_s())
            self.receipts.on_sending(message.batch.message_id, message.body.traces, self._clock.wall_s())
            self._has_response[message.batch.message_id] = False
        try:
            await self._xmpp.send([message.stanza for message in messages])
            for message in messages:
                if message.image_stanza:
                    # It may be lost, so that it neither delays nor repeats a batch.
                    self._xmpp.send_unconfirmed(message.image_stanza)
            accepted = [message for message in messages if not self._has_response[message.batch.message_id]]
        finally:
            for message in messages:
                del self._has_response[message.batch.message_id]
        now_s = self._clock.wall_s()
        for message in messages:
            batch = message.batch
            for trace in message.body.traces:
                TRACING.record_step(trace, "sent", batch.claimed_s, message=batch.message_id)
            if not batch.acked and not batch.replaces:  # most changes of a correction were detected long ago
                for detected_s in message.body.detected_s:
                    DELIVERY_DELAY.observe(max(0.0, now_s - detected_s))
        return accepted

    async def _record(self, accepted: Sequence[_Message], empty: Sequence[tuple[UserId, MessageId]]) -> None:
        """Record in the store that the server has acknowledged ``accepted``.

        A batch stays in flight if its receipt is now awaited; all other batches are complete. Batches without
        content, listed in ``empty`` as pairs (user id, message id), were not sent and are also complete.
        """
        acked, done = [], list(empty)
        for message in accepted:
            user_id, batch = message.user_id, message.batch
            self._scheduler.on_accepted(user_id)
            sends = batch.tries + 1 if batch.acked else 1
            is_last = sends >= MAX_SENDS and self._scheduler.was_online(user_id)
            expired = None
            if message.requests_receipt and not is_last:
                expired = self.receipts.expect(user_id, batch.message_id, is_resend=batch.acked)
            if expired is None:
                self.receipts.drop(user_id, batch.message_id)
                done.append((user_id, batch.message_id))
            else:
                acked.append((user_id, batch.message_id))
                done += [(user_id, old) for old in expired]
        await self.complete(acked=acked, done=done)
