"""Subscribing somebody to a channel that there is."""

import contextlib

from service.errors import CoronetError
from service.feeds.urls import host_of
from service.model import ChannelId
from service.store import Store


async def follow(store: Store, jid: str, cid: ChannelId, most: int) -> tuple[int, bool]:
    """Return the number of a person's subscription and whether it is new; it is polled then. Raises CoronetError.

    They have at most ``most``, or as many as an admin has set.
    """
    followed = await store.channels.get(cid)
    if followed is not None:
        await store.blocks.refuse(host_of(followed.url))
    subscription, new = await store.subscriptions.subscribe(jid, cid, most)
    if new:
        await store.requests.wanted(subscription.channel)
        channel = await store.channels.get(subscription.channel)
        if channel is not None and channel.dormant:  # it fell asleep since we looked it up
            with contextlib.suppress(CoronetError):  # they are subscribed; polls will wake it up
                await store.requests.probe(channel.url, as_page=channel.kind == "page")
    return subscription.number, new
