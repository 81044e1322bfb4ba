"""Recovery of the work that a failed process left unfinished, before another process serves its users.

Several processes can share one XMPP account; each of them serves some of the account's users. The recovery first
terminates the session of the failed process, so that the server handles or drops the stanzas in transit. Then it
reads the account's archive (XEP-0313). It marks the messages that reached the server as sent, applies receipts, and
stores the messages that users sent to the failed session. If there is no archive, messages that the server has not
acknowledged are sent again under the same id (guarantee I2). Every step is idempotent: if this process fails as well,
the next process starts over (guarantee I8).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import structlog

from bots.inbound.intake import Intake
from bots.xmpp.archive import ArchivePage, read_archive
from bots.xmpp.deduplication import MAX_CLOCK_SKEW_S
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.message_ids import is_batch_id, reply_id
from service.errors import StoreUnavailable
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.partition_leases import FailedProcess

_USER_ID_LENGTH: Final = len(user_id(""))
_log = structlog.get_logger()


class Takeover:
    """Recovers the work of failed processes that used the bot's account."""

    def __init__(self, store: Store, xmpp: XmppClient, intake: Intake) -> None:
        """Create an object that recovers the work of failed processes.

        It reads the archive through ``xmpp``, and stores users' messages through ``intake``.
        """
        self._store = store
        self._xmpp = xmpp
        self._intake = intake

    async def recover(self, failed: FailedProcess, lease_ttl_s: float) -> bool:
        """Recover the messages and commands of a failed process, whose lease has expired.

        ``lease_ttl_s`` is how many seconds a lease lasts. Return False if the store or the XMPP server was unavailable,
        so that the recovery must be repeated.
        """
        try:
            await self._terminate_session(failed.holder)
            since_s = failed.lease_ended_s - lease_ttl_s - MAX_CLOCK_SKEW_S
            await self._intake.store_archived(self._apply_archive(since_s))
        except (StoreUnavailable, XmppSessionLost, TimeoutError) as error:
            _log.warning("work of failed bot process not taken over", session=failed.holder, error=str(error))
            return False
        _log.info("work of failed bot process taken over", session=failed.holder)
        return True

    async def _terminate_session(self, session: str) -> None:
        try:
            await self._xmpp.terminate_session(session)
        except TimeoutError:
            _log.warning("session termination failed", session=session)

    async def _apply_archive(self, since_s: float) -> AsyncIterator[Sequence[MessageReceived]]:
        """Read the account's archive since ``since_s`` (Unix seconds); yield the users' messages, one page at a time.

        Before the messages of a page are yielded, the store is updated. Replies and batches of notifications that are
        on the page are recorded as sent, so that they are not sent again.
        """
        async for page in read_archive(self._xmpp, since_s):
            await self._complete_batches(page)
            await self._complete_replies(page)
            yield page.messages

    async def _complete_batches(self, page: ArchivePage) -> None:
        """Record in the store which batches of notifications have arrived, according to one page of the archive.

        If the page contains the receipt of a batch, the batch becomes complete. If it contains the batch itself, the
        batch has reached the server. The batch is then complete if the user's client sends no receipts. Otherwise it
        is marked as sent.
        """
        receipts = {(user_id(each.jid), each.message_id) for each in page.receipts}
        received = {pair for pair in receipts if is_batch_id(*pair)}
        sent = {
            (message_id[:_USER_ID_LENGTH], message_id)
            for message_id in page.sent_ids
            if is_batch_id(message_id[:_USER_ID_LENGTH], message_id)
        } - received
        outbox = self._store.outbox
        await outbox.complete(received=sorted(received))
        uids = sorted({uid for uid, _ in sent})
        recipients = await self._store.users.recipients(uids)
        sends_receipts = {uid: sends for uid, (_, sends) in zip(uids, recipients, strict=True)}
        inflight = await outbox.in_flight(uids)
        pending = {(uid, batch.message_id) for uid in uids for batch in inflight[uid] if not batch.acked}
        unconfirmed = sorted(sent & pending)
        acked = [pair for pair in unconfirmed if sends_receipts[pair[0]]]
        await outbox.complete(acked=acked, done=[pair for pair in unconfirmed if not sends_receipts[pair[0]]])

    async def _complete_replies(self, page: ArchivePage) -> None:
        """Complete each reply whose last part is on this page of the archive, so that it is not sent again."""
        uids = sorted(
            {
                message_id[:_USER_ID_LENGTH]
                for message_id in page.sent_ids
                if message_id[_USER_ID_LENGTH : _USER_ID_LENGTH + 1] == "."
            }
        )
        answered = [each for each in await self._store.inbound_log.read_unanswered(uids) if each.reply]
        last_ids = {
            (each.uid, each.entry_id): reply_id(each.uid, each.entry_id, len(each.reply) - 1) for each in answered
        }
        await self._store.inbound_log.remove_answered(
            [pair for pair, message_id in last_ids.items() if message_id in page.sent_ids]
        )
