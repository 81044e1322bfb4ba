"""Subscribes people to the lists they sent, in the background, and tells them in the end what came of it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import structlog

from bots.cluster.assigned_users import AssignedUsers
from bots.dialogue.request_types import Limits
from bots.replies.subscriptions import ImportResult
from bots.tasks import cancel_and_wait
from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender, send_until_confirmed
from bots.xmpp.message_ids import new_message_id
from service.errors import CoronetError, LimitReached, NotAFeed, StoreUnavailable
from service.feeds.opml import OpmlSubscription
from service.feeds.urls import channel_id, host_of
from service.model import ChannelId, Subscription, UserId
from service.store import Store
from service.store.client.keys import user_id
from service.users.preferences import Preferences

AT_ONCE: Final = 4
"""Feeds of one person, and people, at the same time."""
MOST_WAITING: Final = 5_000
"""Feeds of one person; one list has no more."""
_LOOK_EVERY_S = 5.0
_DAY_S = 86_400.0
_log = structlog.get_logger()


async def follow(store: Store, jid: str, cid: ChannelId, most: int) -> tuple[Subscription, bool]:
    """Return a person's subscription and whether it is new; it is polled then. Raises CoronetError.

    They have at most ``most``, or as many as an admin has set.
    """
    followed = await store.channels.get(cid)
    if followed is not None:
        await store.blocked_hosts.check(host_of(followed.url))
    subscription, new = await store.subscriptions.subscribe(jid, cid, most)
    if new:
        await store.worker_requests.announce_channel(subscription.channel)
        channel = await store.channels.get(subscription.channel)
        if channel is not None and channel.dormant:  # it fell asleep since we looked it up
            with contextlib.suppress(CoronetError):  # they are subscribed; polls will wake it up
                await store.worker_requests.probe(channel.url, as_page=channel.kind == "page")
    return subscription, new


class OpmlImporter:
    """The imports of one bot's people. :meth:`run` drives it."""

    def __init__(self, store: Store, link: XmppSender, assigned_users: AssignedUsers, limits: Limits) -> None:
        """Import for those whom ``assigned_users`` has, of the people of the bot of this link's address."""
        self._assigned_users = assigned_users
        self._store = store
        self._link = link
        self._limits = limits
        self._stirred = asyncio.Event()
        self._at_work: dict[UserId, asyncio.Task[None]] = {}

    async def add(self, jid: str, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Take in what a person wants to import; durable once this returns. Raises LimitReached."""
        waiting = await self._store.import_queue.count(jid)
        if waiting and waiting + len(feeds) > MOST_WAITING:
            raise LimitReached("Your last list is still being imported. Please send the next one when it's done.")
        await self._store.import_queue.add(jid, feeds, self._link.address)
        self._stirred.set()

    async def stop(self, jid: str) -> None:
        """Leave off with one person's list; what is left of it is theirs to forget."""
        task = self._at_work.get(user_id(jid))
        if task is not None:
            await cancel_and_wait(task)

    async def lost(self) -> None:
        """Leave off for those whom another bot serves now."""
        for uid, task in tuple(self._at_work.items()):
            if not self._assigned_users.includes(uid):
                await cancel_and_wait(task)

    async def run(self) -> None:
        """Import until cancelled; what is left is imported by whoever comes next."""
        try:
            while True:
                self._stirred.clear()
                await self._begin()
                try:
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await self._stirred.wait()
                except TimeoutError:
                    continue
        finally:
            await cancel_and_wait(*tuple(self._at_work.values()))

    async def _begin(self) -> None:
        try:
            waiting = await self._assigned_users.select(await self._store.import_queue.users(self._link.address))
        except StoreUnavailable:
            return
        for uid in waiting:
            if uid not in self._at_work and len(self._at_work) < AT_ONCE:
                task = self._at_work[uid] = asyncio.create_task(self._import(uid))
                task.add_done_callback(lambda _, uid=uid: self._ended(uid))  # type: ignore[misc] # a default has no type

    def _ended(self, uid: UserId) -> None:
        self._at_work.pop(uid, None)
        self._stirred.set()

    async def _import(self, uid: UserId) -> None:
        came = ImportResult()
        try:
            (jid,) = await self._store.outbox.jids([uid])
            while feeds := await self._store.import_queue.peek(uid, AT_ONCE):
                known = await self._store.users.get(jid)
                if not known.suspended:  # else the rest of the list is dropped
                    came = came.merge(await self._some(jid, feeds, self._limits.of(known.most_subscriptions)))
                await self._store.import_queue.remove(uid, len(feeds))
            await self._store.import_queue.remove_user(uid, self._link.address)
            if (await self._store.users.get(jid)).suspended:
                return
        except StoreUnavailable as error:
            _log.info("an import waits", user=uid, reason=str(error))
            await asyncio.sleep(_LOOK_EVERY_S)
            return
        await self._tell(jid, came)

    async def _some(self, jid: str, feeds: Sequence[OpmlSubscription], limits: Limits) -> ImportResult:
        """Subscribe to a few feeds. Raises StoreUnavailable."""
        mine = {held.channel for held in await self._store.subscriptions.of_user(jid)}
        room = limits.subscriptions - len(mine)
        new = [feed for feed in feeds if channel_id(feed.url) not in mine]
        ended = await asyncio.gather(*(self._target(jid, feed) for feed in new[: max(room, 0)]))
        full = LimitReached("You've reached the maximum of {count} subscriptions.", count=limits.subscriptions)
        came = ImportResult(
            existing=len(feeds) - len(new), failed=tuple((feed.url, full) for feed in new[max(room, 0) :])
        )
        for one in ended:
            came = came.merge(one)
        return came

    async def _target(self, jid: str, feed: OpmlSubscription) -> ImportResult:
        try:
            cid = await self._channel(jid, feed)
            subscription, new = await follow(self._store, jid, cid, self._limits.subscriptions)
        except StoreUnavailable:
            raise
        except CoronetError as error:
            return ImportResult(failed=((feed.url, error),))
        if new and feed.title:  # they call it what the list calls it, where that is not what its publisher does
            channel = await self._store.channels.get(subscription.channel)
            if channel is not None and channel.title != feed.title:
                own = Preferences(title=feed.title)
                await self._store.preferences.put(jid, subscription.number, own)
        return ImportResult(new=int(new), existing=int(not new))

    async def _channel(self, jid: str, feed: OpmlSubscription) -> ChannelId:
        """Return the feed's channel, which may have to be made. Raises what keeps it from that."""
        known = await self._store.channels.resolve(channel_id(feed.url))
        if known is not None and not known.dormant:
            return known.id
        if not await self._store.users.count_use(jid, "import", self._limits.subscriptions, _DAY_S):
            raise LimitReached(
                "You've reached today's maximum of {count} new addresses.", count=self._limits.subscriptions
            )
        probed = await self._store.worker_requests.probe(feed.url, as_page=feed.page)
        if probed.channel is None:
            raise NotAFeed("There is a page that names no feed, or several.")
        return probed.channel.id

    async def _tell(self, jid: str, came: ImportResult) -> None:
        (user_settings,) = await self._store.users.user_settings([user_id(jid)])
        content = stanzas.body(came.text(user_settings.effective_language)) + stanzas.RECEIPT_REQUEST
        ident = new_message_id(user_id(jid))
        await send_until_confirmed(self._link, [stanzas.message(self._link.address, jid, ident, content)])
