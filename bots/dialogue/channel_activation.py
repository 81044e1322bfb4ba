"""Subscription of users to channels, by which a channel becomes active.

The workers poll a channel that has a subscription. They are informed of each new subscription, and a dormant channel,
which nobody was subscribed to, is polled at once.
"""

import contextlib

from service.errors import CoronetError
from service.feeds.canonical_urls import host_of
from service.model import ChannelId, Subscription
from service.store import Store


async def subscribe_channel(
    store: Store, jid: str, cid: ChannelId, max_subscriptions: int
) -> tuple[Subscription, bool]:
    """Subscribe a user to a channel; return the subscription and whether it is new.

    A new subscription is announced to the workers, so that the channel is polled. ``max_subscriptions`` is the maximum
    number of the user's subscriptions, unless an admin has set another limit for the user.

    Raises CoronetError if the user already has the maximum number of subscriptions, if an admin has blocked the
    channel's host, or if the store does not respond.
    """
    channel_before = await store.channels.get(cid)
    if channel_before is not None:
        await store.blocked_hosts.check(host_of(channel_before.url))
    subscription, new = await store.subscriptions.subscribe(jid, cid, max_subscriptions)
    if new:
        await store.worker_requests.announce_channel(subscription.channel)
        channel = await store.channels.get(subscription.channel)
        if channel is not None and channel.dormant:  # it became dormant in the meantime
            with contextlib.suppress(CoronetError):  # later polls will activate it
                await store.worker_requests.probe(channel.url, as_page=channel.kind == "page")
    return subscription, new
