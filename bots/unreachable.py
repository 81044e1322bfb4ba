"""Somebody whom nothing reaches is told nothing more, until they write to us."""

import structlog

from service.model import UserId
from service.store import Store

_log = structlog.get_logger()


async def rest_unreachable(store: Store, uid: UserId) -> None:
    """Withhold everything from a person whom nothing has reached for 14 days. Raises StoreUnavailable."""
    (jid,) = await store.outbox.address([uid])
    if jid:
        mine = await store.subscriptions.of_user(jid)
        await store.pauses.rest(jid, [held.channel for held in mine])
        _log.info("unreachable: nothing reached them for 14 days", user=uid)
