"""What dialogues ask for, done on the store. No policy: that is the dialogue's."""

import asyncio
import contextlib
from typing import Any

from bots.delivery import Delivery
from bots.exchange import (
    AddSubscription,
    AddWatch,
    AskWhy,
    CheckHealth,
    EndSubscription,
    EndWatch,
    Followed,
    Health,
    LatestEntries,
    Limits,
    LookUp,
    MyHabits,
    MySubscriptions,
    MyWatches,
    Probe,
    Request,
    Search,
    SetHabits,
    TakeNewUrl,
)
from service.discovery.grammar import Finding, Query
from service.errors import CoronetError
from service.model import ChannelId
from service.store import Store
from service.store.keys import user_id

_HOUR_S = 3600.0


class House:
    """Serves one request at a time; each may raise a CoronetError."""

    def __init__(self, store: Store, delivery: Delivery, limits: Limits) -> None:
        """Serve from ``store``; ``delivery`` is paused for a person while one of their subscriptions ends."""
        self._store = store
        self._delivery = delivery
        self._limits = limits

    async def serve(self, jid: str, request: Request) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm per request
        """Return the request's result as its class states it, for the person with this bare JID."""
        match request:
            case LookUp(cid):
                return await self._store.channels.resolve(cid)
            case TakeNewUrl():
                return await self._store.users.allow(jid, "url", self._limits.new_urls_per_hour, _HOUR_S)
            case Probe(url, as_page):
                return await self._store.requests.probe(url, as_page=as_page)
            case MySubscriptions():
                return await self._followed(jid)
            case AddSubscription(cid):
                return await self._subscribe(jid, cid)
            case EndSubscription(cid):
                async with self._delivery.paused(jid):
                    return await self._store.subscriptions.unsubscribe(jid, cid)
            case LatestEntries(cid, count):
                return await self._store.channels.latest(cid, count)
            case AskWhy(cid):
                return await self._store.requests.why(cid)
            case MyHabits():
                return (await self._store.users.habits([user_id(jid)]))[0]
            case SetHabits(habits):
                await self._store.users.set_habits(jid, habits)
                self._delivery.changed(jid)
                return None
            case Search(query):
                return await self._found(jid, query)
            case MyWatches():
                return tuple(await self._store.standing.of_user(jid))
            case AddWatch(standing):
                return await self._store.standing.watch(jid, standing, self._limits.watches)
            case EndWatch(number):
                return await self._store.standing.unwatch(jid, number)
            case CheckHealth(cids):
                return await self._health(cids)

    async def _found(self, jid: str, query: Query) -> tuple[Finding, ...]:
        search, least = self._store.search, self._limits.public_from_subscribers
        own, public = await asyncio.gather(search.own(jid, query, least), search.find(query, least))
        return (*own, *public)[: query.limit]

    async def _subscribe(self, jid: str, cid: ChannelId) -> tuple[int, bool]:
        subscription, new = await self._store.subscriptions.subscribe(jid, cid)
        if new:
            await self._store.requests.wanted(subscription.channel)
            channel = await self._store.channels.get(subscription.channel)
            if channel is not None and channel.dormant:  # it fell asleep since we looked it up
                with contextlib.suppress(CoronetError):  # they are subscribed; polls will wake it up
                    await self._store.requests.probe(channel.url, as_page=channel.kind == "page")
        return subscription.number, new

    async def _followed(self, jid: str) -> tuple[Followed, ...]:
        subscriptions = await self._store.subscriptions.of_user(jid)
        channels = await self._store.channels.many([subscription.channel for subscription in subscriptions])
        pairs = zip(subscriptions, channels, strict=True)
        return tuple(Followed(subscription.number, channel) for subscription, channel in pairs if channel is not None)

    async def _health(self, cids: tuple[ChannelId, ...]) -> Health:
        workers, states = await asyncio.gather(self._store.ring.view(), self._store.channels.states(cids))
        ill = {
            state.channel.id: state.failing_since_s
            for state in states
            if state is not None and state.failing_since_s is not None
        }
        failing = {}
        for cid, since_s in ill.items():
            last = await self._store.channels.polls(cid, 1)
            failing[cid] = (last[0].outcome if last else "", since_s)
        return Health(len(workers), failing)
