"""What dialogues ask for, done on the store. No policy: that is the dialogue's."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from bots.asking import (
    AcceptInvitation,
    AddSubscription,
    AddWatch,
    AskWhy,
    CheckHealth,
    EndSubscription,
    EndWatch,
    Followed,
    ForgetEverything,
    Health,
    ImportThese,
    LatestEntries,
    Limits,
    LookUp,
    MyHabits,
    MyPreferences,
    MySubscriptions,
    MyWatches,
    NodeOf,
    PausePlease,
    Probe,
    PutPreferences,
    ReadList,
    ReadListText,
    Request,
    ResumePlease,
    Search,
    SetHabits,
    Share,
    TakeNewUrl,
    ToldBy,
    WhatItTold,
)
from bots.atom import node_uri
from bots.delivery import Delivery
from bots.dialogue import Dialogue
from bots.door import Door
from bots.exchange import NotAdmitted, Reply
from bots.following import follow
from bots.importing import Importing
from bots.uploads import Uploads
from bots.voice import spoken
from service.discovery.grammar import Finding, Query
from service.errors import CoronetError, NotSubscribed, NoWorker
from service.feeds.sandbox import OpmlReader
from service.feeds.urls import host_of
from service.location.contents import LATEST
from service.model import Channel, ChannelId, Entry, Subscription, UserId
from service.preferences import FOR_ALL, NONE, ByNumber
from service.store import Store
from service.store.forgetting import RESTRICTIONS_KEPT_DAYS
from service.store.keys import user_id
from service.store.outbox import Batch, MessageId, ToldMessage
from service.store.users import UserState

_HOUR_S = 3600.0


class House:
    """Serves one request at a time; each may raise a CoronetError."""

    def __init__(
        self,
        store: Store,
        delivery: Delivery,
        limits: Limits,
        *,
        door: Door,
        importing: Importing,
        uploads: Uploads,
        lists: OpmlReader,
        pubsub_service: str,
    ) -> None:
        """Serve from ``store``, whom ``door`` admits; ``delivery`` is paused while a person's subscription ends.

        ``pubsub_service`` is where public channels are published, or "".
        """
        self.pubsub_service = pubsub_service
        self.uploads = uploads
        self.lists = lists
        self.importing = importing
        self.door = door
        self._store = store
        self.delivery = delivery
        self.limits = limits

    async def greet(self, jid: str, tag: str) -> UserState:
        """Return what was known of a person, who is welcomed by now; their client speaks the language of this tag."""
        known = await self._store.users.get(jid)
        if known.suspended:
            return known  # perhaps they are forgotten, and nothing else is kept of them
        if not await self.door.admits(jid):
            return msgspec.structs.replace(known, welcomed=True)  # nothing is kept of strangers
        if not known.welcomed:
            await self._store.users.mark(jid, welcomed=True)
            await self._store.heard.settle(jid)
        if known.unreachable:
            mine = await self._store.subscriptions.of_user(jid)
            await self._store.pauses.reinstate(jid, [held.channel for held in mine])
        client_language = spoken(tag)
        if client_language in ("", known.habits.client_language):
            return known
        await self._store.users.set_client_language(jid, client_language)
        self.delivery.changed(jid)
        habits = msgspec.structs.replace(known.habits, client_language=client_language)
        return msgspec.structs.replace(known, habits=habits)

    async def conduct(self, jid: str, dialogue: Dialogue, at_work: Callable[[], None]) -> Reply:
        """Carry out a dialogue with the person of this bare JID; ``at_work`` is called before what takes long."""
        try:
            request = next(dialogue)
            if not isinstance(request, AcceptInvitation) and not await self.door.admits(jid):
                dialogue.close()
                return NotAdmitted()
            while True:
                if isinstance(request, Probe | ReadList | ReadListText | Share):
                    at_work()
                try:
                    result = await self.serve(jid, request)
                except CoronetError as error:
                    request = dialogue.throw(error)
                else:
                    request = dialogue.send(result)
        except StopIteration as end:
            reply: Reply = end.value
            return reply

    async def serve(self, jid: str, request: Request) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm per request
        """Return the request's result as its class states it, for the person with this bare JID."""
        match request:
            case LookUp(cid):
                return await self._store.channels.resolve(cid)
            case TakeNewUrl():
                return await self._store.users.allow(jid, "url", self.limits.new_urls_per_hour, _HOUR_S)
            case Probe(url, as_page):
                return await self._store.requests.probe(url, as_page=as_page)
            case MySubscriptions():
                return await self._followed(jid)
            case AddSubscription(cid):
                await self._store.heard.settle(jid)
                return await follow(self._store, jid, cid, self.limits.subscriptions)
            case EndSubscription(cid):
                async with self.delivery.paused(jid):
                    return await self._store.subscriptions.unsubscribe(jid, cid)
            case LatestEntries(cid, count):
                return await self._latest(cid, count)
            case AskWhy(cid):
                channel = await self._store.channels.get(cid)
                await self._store.blocks.refuse(host_of(channel.url) if channel else "")
                return await self._store.requests.why(cid)
            case NodeOf(cid):
                return await self._node_of(cid)
            case MyHabits():
                return (await self._store.users.habits([user_id(jid)]))[0]
            case SetHabits(habits):
                await self._store.users.set_habits(jid, habits)
                self.delivery.changed(jid)
                if habits.heeds_presence:
                    self.delivery.befriend(jid)
                return None
            case Search(query):
                return await self._found(jid, query)
            case MyWatches():
                return tuple(await self._store.standing.of_user(jid))
            case AddWatch(standing):
                return await self._store.standing.watch(jid, standing, self.limits.watches)
            case EndWatch(number):
                return await self._store.standing.unwatch(jid, number)
            case ReadList(url):
                if self.uploads.files.is_own(url):
                    return await self.lists.read(lambda: self.uploads.files.read(url))
                return await self._store.requests.outline(url)
            case ReadListText(text):
                return await self.lists.read(lambda: _encoded(text))
            case Share(name, body, media_type):
                return await self.uploads.share(name, body, media_type)
            case ImportThese(feeds):
                await self.importing.add(jid, feeds)
                return None
            case AcceptInvitation(code):
                return await self.door.accept(jid, code)
            case ForgetEverything():
                await self.importing.stop(jid)
                async with self.delivery.paused(jid):
                    await self.delivery.part(jid)
                    is_restricted = await self._store.forgetting.forget(jid)
                    self.delivery.forget(jid)
                return RESTRICTIONS_KEPT_DAYS if is_restricted else 0
            case PausePlease(cids, watches):
                async with self.delivery.paused(jid):
                    return await self._store.pauses.pause(jid, cids, watches=watches)
            case ResumePlease(cids, watches):
                return await self._store.pauses.resume(jid, cids, watches=watches)
            case MyPreferences():
                return (await self._store.preferences.of_users([user_id(jid)]))[0]
            case PutPreferences(number, preferences):
                async with self.delivery.paused(jid):
                    await self._store.preferences.put(jid, number, preferences)
                    self.delivery.changed(jid)
                return None
            case ToldBy(message_id):
                return await self._told_by(user_id(jid), message_id)
            case CheckHealth(cids):
                return await self._health(cids)

    async def _found(self, jid: str, query: Query) -> tuple[Finding, ...]:
        search, least = self._store.search, self.limits.public_from_subscribers
        own, public = await asyncio.gather(search.own(jid, query, least), search.find(query, least))
        return (*own, *public)[: query.limit]

    async def _latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return the latest entries from the nearest copy; more than a content has only the log does."""
        if count <= LATEST:
            with contextlib.suppress(NoWorker, NotSubscribed):
                return (await self._store.requests.show(cid)).latest[:count]
        return await self._store.channels.latest(cid, count)

    async def _node_of(self, cid: ChannelId) -> str:
        service = self.pubsub_service
        position = (await self._store.nodes.of(service, [cid])).get(cid) if service else None
        return node_uri(service, cid) if position is not None and position.version else ""

    async def _followed(self, jid: str) -> tuple[Followed, ...]:
        subscriptions, (preferences,) = await asyncio.gather(
            self._store.subscriptions.of_user(jid), self._store.preferences.of_users([user_id(jid)])
        )
        channels = await self._store.channels.many([subscription.channel for subscription in subscriptions])
        pairs = zip(subscriptions, channels, strict=True)
        return tuple(followed(subscription, channel, preferences) for subscription, channel in pairs if channel)

    async def _told_by(self, uid: UserId, message_id: MessageId) -> WhatItTold | None:
        (told,), flying = await asyncio.gather(self._store.outbox.told([uid]), self._store.outbox.inflight([uid]))
        messages: list[ToldMessage | Batch] = [*told, *flying[uid]]
        items = [item for one in messages if one.message_id == message_id for item in one.items]
        if not items:
            return None
        watches = {watch.number for item in items for watch in item.met}
        return WhatItTold(tuple(dict.fromkeys(item.channel for item in items)), tuple(sorted(watches)))

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


async def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def followed(subscription: Subscription, channel: Channel, preferences: ByNumber) -> Followed:
    """Return a subscription as its person sees it."""
    own = preferences.get(subscription.number, NONE)
    channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    muted = own.muted or preferences.get(FOR_ALL, NONE).muted
    return Followed(subscription.number, channel, paused=subscription.paused_version is not None, muted=muted)
