"""Recovery of the unfinished work of a failed process, before its people are served by another one.

Several processes can share one XMPP account; each serves a part of its people. The recovery first ends the session of
the failed process, so that its server has handled or dropped what was in transit. Then it reads the account's archive:
messages that reached the server are marked as sent, receipts are applied, and what people wrote to the failed session
is stored. Without an archive, what the server had not confirmed is sent again under the same id. Every step is
idempotent: should this process fail as well, the next one starts over.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import structlog

from bots.inbound.intake import Intake
from bots.xmpp.archive import ArchivePage, read_archive
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.message_ids import is_batch_id, reply_id
from bots.xmpp.message_parser import MAX_CLOCK_SKEW_S
from service.errors import StoreUnavailable
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.leases import FailedProcess

_UID_LENGTH: Final = len(user_id(""))
_log = structlog.get_logger()


class Takeover:
    """Recovers the work of failed processes of our account."""

    def __init__(self, store: Store, link: XmppClient, intake: Intake) -> None:
        """Have ``intake`` store what people wrote."""
        self._store = store
        self._link = link
        self._intake = intake

    async def recover(self, failed: FailedProcess, ttl_s: float) -> bool:
        """Recover what a process began whose lease of ``ttl_s`` has ended; return False if that has to be repeated."""
        try:
            await self._end_session(failed.holder)
            await self._intake.store_earlier(self._read(failed.lease_ended_s - ttl_s - MAX_CLOCK_SKEW_S))
        except (StoreUnavailable, XmppSessionLost, TimeoutError) as error:
            _log.warning("a dead bot's work waits", session=failed.holder, reason=str(error))
            return False
        _log.info("a dead bot's work is settled", session=failed.holder)
        return True

    async def _end_session(self, session: str) -> None:
        try:
            await self._link.terminate_session(session)
        except TimeoutError:
            _log.warning("a dead bot's session could not be ended", session=session)

    async def _read(self, since_s: float) -> AsyncIterator[Sequence[MessageReceived]]:
        async for page in read_archive(self._link, since_s):
            await self._complete_batches(page)
            await self._complete_replies(page)
            yield page.messages

    async def _complete_batches(self, page: ArchivePage) -> None:
        """Complete what has its receipt; await receipts for the rest that reached the server, or complete it."""
        receipts = {(user_id(each.jid), each.message_id) for each in page.receipts}
        received = {pair for pair in receipts if is_batch_id(*pair)}
        sent = {(mid[:_UID_LENGTH], mid) for mid in page.sent_ids if is_batch_id(mid[:_UID_LENGTH], mid)} - received
        outbox = self._store.outbox
        await outbox.complete(received=sorted(received))
        uids = sorted({uid for uid, _ in sent})
        recipients = await self._store.users.recipients(uids)
        awaits = {uid: sends_receipts for uid, (_, sends_receipts) in zip(uids, recipients, strict=True)}
        flying = await outbox.in_flight(uids)
        unconfirmed = sorted(sent & {(uid, each.message_id) for uid in uids for each in flying[uid] if not each.acked})
        acked = [pair for pair in unconfirmed if awaits[pair[0]]]
        await outbox.complete(acked=acked, done=[pair for pair in unconfirmed if not awaits[pair[0]]])

    async def _complete_replies(self, page: ArchivePage) -> None:
        """Complete the replies whose last part has reached the server, so that they are not sent again."""
        uids = sorted({mid[:_UID_LENGTH] for mid in page.sent_ids if mid[_UID_LENGTH : _UID_LENGTH + 1] == "."})
        noted = [each for each in await self._store.inbound_log.read_unanswered(uids) if each.reply]
        last = {(each.uid, each.entry_id): reply_id(each.uid, each.entry_id, len(each.reply) - 1) for each in noted}
        await self._store.inbound_log.remove_answered([pair for pair, mid in last.items() if mid in page.sent_ids])
