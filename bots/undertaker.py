"""What is done when another bot of our account has died, before its people become ours.

The end of its session is seen to first: whatever it wrote last has been handled then, or never will be. The account's
archive says the rest: what arrived at the server is not sent again, which receipts came, and what people said to that
very session and nobody read. A server without an archive says nothing: then what the server had not confirmed is sent
again, under the same id.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

import structlog

from bots.archive import Kept, past
from bots.hearing import Hearing
from bots.ids import answer_id, is_batch
from bots.incoming import CLOCKS_DIFFER_S
from bots.link import AskingLink, LinkLost, Receipt, Said
from service.errors import StoreUnavailable
from service.store import Store
from service.store.keys import user_id
from service.store.outbox import MessageId
from service.store.spread import Dead

_UID_LENGTH: Final = len(user_id(""))
_log = structlog.get_logger()


class Undertaker:
    """One bot's. What is done may be done again: by the next, should this bot die, too."""

    def __init__(self, store: Store, link: AskingLink, hearing: Hearing) -> None:
        """Have ``hearing`` take in what people said."""
        self._store = store
        self._link = link
        self._hearing = hearing

    async def settle(self, dead: Dead, ttl_s: float) -> None:
        """Settle what a bot began whose lease of ``ttl_s`` has ended. Raises StoreUnavailable, LinkLost."""
        try:
            await self._link.lay_to_rest(dead.holder)
        except TimeoutError:
            _log.warning("a dead bot's session could not be ended", session=dead.holder)
        await self._hearing.first(self._read(dead.ended_s - ttl_s - CLOCKS_DIFFER_S))
        _log.info("a dead bot's work is settled", session=dead.holder)

    async def _read(self, since_s: float) -> AsyncIterator[Sequence[Said]]:
        async for kept in past(self._link, since_s):
            await self._take_note(kept)
            yield kept.said

    async def _take_note(self, kept: Kept) -> None:
        arrived = {(user_id(each.jid), each.message_id) for each in kept.receipts if _is_batch(each)}
        sent = {(mid[:_UID_LENGTH], mid) for mid in kept.sent if is_batch(mid[:_UID_LENGTH], mid)} - arrived
        outbox = self._store.outbox
        await outbox.received(sorted(arrived))
        uids = sorted({uid for uid, _ in sent})
        awaits = dict(zip(uids, await self._store.users.receipts(uids), strict=True))
        flying = await outbox.inflight(uids)
        unconfirmed = {(uid, each.message_id) for uid in uids for each in flying[uid] if not each.acked}
        await outbox.acked([pair for pair in sorted(sent & unconfirmed) if awaits[pair[0]]])
        await outbox.done([pair for pair in sorted(sent & unconfirmed) if not awaits[pair[0]]])
        await self._strike_off(kept.sent)

    async def _strike_off(self, sent: Collection[MessageId]) -> None:
        """Do not say again what was said: answers of which the last part has arrived."""
        uids = sorted({mid[:_UID_LENGTH] for mid in sent if mid[_UID_LENGTH : _UID_LENGTH + 1] == "."})
        said = [each for each in await self._store.heard.read(uids) if each.answers]
        last = {(each.uid, each.place): answer_id(each.uid, each.place, len(each.answers) - 1) for each in said}
        await self._store.heard.done([pair for pair, mid in last.items() if mid in sent])


def _is_batch(receipt: Receipt) -> bool:
    return is_batch(user_id(receipt.jid), receipt.message_id)


async def settled(undertaker: Undertaker, dead: Dead, ttl_s: float) -> bool:
    """Whether a dead bot's work is settled; if not, it is tried again with the next heartbeat."""
    try:
        await undertaker.settle(dead, ttl_s)
    except (StoreUnavailable, LinkLost, TimeoutError) as error:
        _log.warning("a dead bot's work waits", session=dead.holder, reason=str(error))
        return False
    return True
