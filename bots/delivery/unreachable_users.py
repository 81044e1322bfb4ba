"""Unreachable users: the suspension of deliveries to users whose messages have bounced for 14 days, and its end.

The suspension ends when the user writes to the bot.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from service.model import UserId
from service.store import Store
from service.store.delivery.outbox import Batch

GIVE_UP_AFTER_S: Final = 14 * 86_400.0
"""Age of a batch, in seconds since its claim, at which it becomes undeliverable if the user's messages still bounce."""
_log = structlog.get_logger()


async def suspend_unreachable_user(store: Store, user_id: UserId, batches: Sequence[Batch]) -> None:
    """Suspend all subscriptions of a user whose messages have bounced for 14 days.

    The ``batches`` in flight are moved to the dead letters, a list for admins. Their items count as withheld by the
    suspension; when it ends, the user gets a summary of withheld items.
    """
    (jid,) = await store.users.jids([user_id])
    if jid:
        subscriptions = await store.subscriptions.of_user(jid)
        await store.pauses.suspend_unreachable(jid, [subscription.channel for subscription in subscriptions])
        _log.info("user suspended", user=user_id, reason="messages bounced for 14 days")
    for batch in batches:
        await store.outbox.move_to_dead_letters(user_id, batch.message_id, "bounced for 14 days")


async def resume_reachable_user(store: Store, jid: str) -> None:
    """Resume the deliveries to an unreachable user, who has written to the bot."""
    subscriptions = await store.subscriptions.of_user(jid)
    await store.pauses.resume_reachable(jid, [each.channel for each in subscriptions])
