"""Limits on subscriptions: how many a user may have, and how many new URLs a user may send per hour.

Each function returns None if a command is within the limit. If not, it returns the reply that refuses the command.
"""

from bots.dialogue.reply import Reply, failure
from bots.dialogue.request_handler import Requests


def refuse_further_subscription(requests: Requests, subscription_count: int) -> Reply | None:
    """Return None if the user may have another subscription, otherwise the reply that refuses it.

    ``subscription_count`` is how many subscriptions the user has.
    """
    if subscription_count < requests.max_subscriptions:
        return None
    return failure(
        requests.translator.ngettext(
            "You've reached the maximum of {count} subscription. To make room, end it with `unsubscribe #n`.",
            "You've reached the maximum of {count} subscriptions. To make room, end one with `unsubscribe #n`.",
            requests.max_subscriptions,
        )
    )


async def refuse_new_url(requests: Requests) -> Reply | None:
    """Count a new URL; return None if it is within the user's hourly limit, otherwise the reply that refuses it."""
    if await requests.use_new_url_allowance():
        return None
    return failure(
        requests.translator.ngettext(
            "You've reached the limit of {count} new URL an hour. Please try again later; everything else works as "
            "usual.",
            "You've reached the limit of {count} new URLs an hour. Please try again later; everything else works as "
            "usual.",
            requests.settings.max_new_urls_per_hour,
        )
    )
