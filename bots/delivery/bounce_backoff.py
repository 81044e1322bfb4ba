"""The back-off after a message to a user has bounced, and the suspension of users whose messages keep bouncing.

During the back-off, nothing is sent to the user. The back-off doubles with each consecutive bounce, up to a maximum. It
is longer after an error that is likely to persist, such as an address that does not exist.

A user whose messages have bounced for 14 days is *unreachable*. Deliveries to an unreachable user are suspended until
the user writes to the bot.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from service.model import UserId
from service.store import Store
from service.store.delivery.outbox import Batch

_NO_RECIPIENT: Final = frozenset(
    {
        *("item-not-found", "gone", "jid-malformed", "remote-server-not-found", "forbidden", "not-allowed"),
        *("not-authorized", "not-acceptable"),  # the last is the answer to a blocked sender (XEP-0191)
    }
)
"""Stanza error conditions (RFC 6120 §8.3.3) that are likely to persist, such as an address that does not exist."""
_BACK_OFF_S: Final = (30.0, 3_600.0)
_BACK_OFF_WITHOUT_RECIPIENT_S: Final = (600.0, 43_200.0)
"""The first and the longest back-off after a bounce with a condition in ``_NO_RECIPIENT``. Each back-off is twice as
long as the previous one."""


def back_off_s(condition: str, bounces: int, jitter: float) -> float:
    """Return how many seconds to wait after a bounce before anything is sent to the user again.

    ``condition`` is the name of the stanza error (RFC 6120 §8.3.3). ``bounces`` is how many consecutive bounces came
    before this one. ``jitter`` is a random number in [0, 1), which spreads retries: the full back-off
    is multiplied by ``(1 + jitter) / 2``.
    """
    first_s, longest_s = _BACK_OFF_WITHOUT_RECIPIENT_S if condition in _NO_RECIPIENT else _BACK_OFF_S
    doubled_s: float = first_s * 2**bounces
    return min(doubled_s, longest_s) * (1 + jitter) / 2


GIVE_UP_AFTER_S: Final = 14 * 86_400.0
"""Age in seconds at which a batch is given up if the user's messages still bounce. The age is counted from the
claim."""
_log = structlog.get_logger()


async def suspend_unreachable_user(store: Store, user_id: UserId, batches: Sequence[Batch]) -> None:
    """Suspend all subscriptions of a user whose messages have bounced for 14 days.

    ``batches`` are the user's batches in flight. They are moved to the dead letters, a list that admins can inspect,
    and their items count as withheld. When the suspension ends, the user gets a summary of all withheld items.
    """
    (jid,) = await store.users.jids([user_id])
    if jid:
        subscriptions = await store.subscriptions.of_user(jid)
        await store.pauses.suspend_unreachable(jid, [subscription.channel for subscription in subscriptions])
        _log.info("user suspended", user=user_id, reason="messages bounced for 14 days")
    for batch in batches:
        await store.outbox.move_to_dead_letters(user_id, batch.message_id, "bounced for 14 days")


async def resume_reachable_user(store: Store, jid: str) -> None:
    """Resume deliveries to a user who was unreachable and has now written to the bot."""
    subscriptions = await store.subscriptions.of_user(jid)
    await store.pauses.resume_reachable(jid, [each.channel for each in subscriptions])
