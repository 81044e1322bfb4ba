"""Somebody whom nothing reaches is told nothing more, until they write to us."""

from collections.abc import Sequence

import structlog

from service.model import UserId
from service.store import Store
from service.store.outbox import Batch

_log = structlog.get_logger()


async def rest_unreachable(store: Store, uid: UserId, flying: Sequence[Batch]) -> None:
    """Withhold everything from a person whom nothing has reached for 14 days. Raises StoreUnavailable.

    The batches in flight are given up; what news they hold is withheld with the rest, to be told in brief one day.
    """
    (jid,) = await store.outbox.address([uid])
    if jid:
        mine = await store.subscriptions.of_user(jid)
        await store.pauses.rest(jid, [held.channel for held in mine])
        _log.info("unreachable: nothing reached them for 14 days", user=uid)
    for batch in flying:
        await store.outbox.dead(uid, batch.message_id, "came back for 14 days")
