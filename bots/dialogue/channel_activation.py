"""Subscribing users to channels, which activates the channels.

The workers poll every channel that has a subscription. The bot notifies them of each new subscription. If the channel
had no subscription before (it was *dormant*), they poll it at once.
"""

import contextlib

from service.errors import CoronetError, NotSubscribed
from service.feeds.canonical_urls import SHARED, host_of, reader_of
from service.model import ChannelId, Subscription
from service.store import Store
from service.store.client.keys import user_id


async def subscribe_channel(
    store: Store, jid: str, cid: ChannelId, max_subscriptions: int
) -> tuple[Subscription, bool]:
    """Subscribe a user to a channel; return the subscription and whether it is new.

    The workers are notified of a new subscription, so that they poll the channel. ``max_subscriptions`` limits how many
    subscriptions the user may have, unless an admin has set another limit for the user.

    Raises CoronetError if the user already has the maximum number of subscriptions, if an admin has blocked the
    channel's host, if the channel has another user's credential, or if the store does not respond.
    """
    channel_before = await store.channels.get(cid)
    if channel_before is not None:
        if reader_of(channel_before.url) not in ("", SHARED, user_id(jid)):
            raise NotSubscribed("There is no such channel.")
        await store.blocked_hosts.check(host_of(channel_before.url))
    subscription, new = await store.subscriptions.subscribe(jid, cid, max_subscriptions)
    if new:
        await store.worker_requests.announce_channel(subscription.channel)
        channel = await store.channels.get(subscription.channel)
        if channel is not None and channel.dormant:  # it became dormant in the meantime
            with contextlib.suppress(CoronetError):  # later polls will activate it
                await store.worker_requests.probe(channel.url, as_page=channel.kind == "page")
    return subscription, new
