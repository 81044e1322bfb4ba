"""Importer of OPML lists: subscribes users, in the background, to the feeds in lists that they have sent to the bot."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from bots.cluster.partitions import AssignedUsers
from bots.dialogue.channel_activation import subscribe_channel
from bots.i18n.translator import get_translator
from bots.replies.subscription_texts import import_result_text
from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender, send_until_confirmed
from bots.xmpp.message_ids import new_message_id
from service.asyncio_tasks import cancel_and_wait
from service.errors import CoronetError, LimitReached, NotAFeed, StoreUnavailable
from service.feeds.canonical_urls import channel_id
from service.feeds.opml_writer import OpmlSubscription
from service.model import ChannelId, UserId
from service.store import Store
from service.store.client.keys import user_id
from service.users.preferences import Preferences

MAX_PARALLEL: Final = 4
"""Maximum number of users whose feeds are imported in parallel, and maximum number of feeds that are imported in
parallel for one user."""
MAX_QUEUED_FEEDS: Final = 5_000
"""Maximum number of feeds that are queued for one user. It is also the maximum number of feeds in a single list."""
_CHECK_INTERVAL_S = 5.0
_DAY_S = 86_400.0
_log = structlog.get_logger()


_Outcome = bool | CoronetError
"""The outcome for one feed: whether the subscription is new, or the error if subscribing failed."""


class OpmlImporter:
    """Subscribes the users of one bot process to the feeds in their OPML lists, while :meth:`run` is running."""

    def __init__(self, store: Store, xmpp: XmppSender, assigned_users: AssignedUsers, max_subscriptions: int) -> None:
        """Create an importer for the users assigned to this process.

        When an import ends, the user is sent a message with the result through ``xmpp``. A user may have up to
        ``max_subscriptions`` subscriptions, unless an admin has set another limit for the user.
        """
        self._assigned_users = assigned_users
        self._store = store
        self._xmpp = xmpp
        self._max_subscriptions = max_subscriptions
        self._wakeup = asyncio.Event()
        self._tasks: dict[UserId, asyncio.Task[None]] = {}

    async def add(self, jid: str, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Add ``feeds`` to the durable queue of feeds to import for the user ``jid``.

        Raises LimitReached if feeds are already queued for the user, and the queue would grow to more than
        ``MAX_QUEUED_FEEDS`` feeds.
        """
        queued = await self._store.import_queue.count(jid)
        if queued and queued + len(feeds) > MAX_QUEUED_FEEDS:
            raise LimitReached("Your last list is still being imported. Please send the next one when it's done.")
        await self._store.import_queue.add(jid, feeds, self._xmpp.address)
        self._wakeup.set()

    async def stop(self, jid: str) -> None:
        """Stop importing feeds for the user ``jid``, because the user's data is being deleted."""
        task = self._tasks.get(user_id(jid))
        if task is not None:
            await cancel_and_wait(task)

    async def release_lost_users(self) -> None:
        """Stop imports for users who are no longer assigned to this process; another process continues them."""
        for uid, task in tuple(self._tasks.items()):
            if not self._assigned_users.includes(uid):
                await cancel_and_wait(task)

    async def run(self) -> None:
        """Import queued feeds until cancelled; feeds that remain in the queue are imported by the next run."""
        try:
            while True:
                self._wakeup.clear()
                with contextlib.suppress(StoreUnavailable):
                    await self._start_tasks()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_INTERVAL_S):
                        await self._wakeup.wait()
        finally:
            await cancel_and_wait(*tuple(self._tasks.values()))

    async def _start_tasks(self) -> None:
        for uid in await self._assigned_users.select(await self._store.import_queue.users(self._xmpp.address)):
            if uid not in self._tasks and len(self._tasks) < MAX_PARALLEL:
                task = self._tasks[uid] = asyncio.create_task(self._import(uid))
                task.add_done_callback(partial(self._on_task_done, uid))

    def _on_task_done(self, uid: UserId, _task: asyncio.Task[None]) -> None:
        self._tasks.pop(uid, None)
        self._wakeup.set()

    async def _import(self, uid: UserId) -> None:
        outcomes: list[tuple[str, _Outcome]] = []
        try:
            (jid,) = await self._store.users.jids([uid])
            while feeds := await self._store.import_queue.peek(uid, MAX_PARALLEL):
                user = await self._store.users.get(jid)
                if not user.suspended:  # otherwise the rest of the list is dropped
                    own = user.most_subscriptions
                    outcomes += await self._import_batch(jid, feeds, self._max_subscriptions if own is None else own)
                await self._store.import_queue.remove(uid, len(feeds))
            await self._store.import_queue.remove_user(uid, self._xmpp.address)
            if (await self._store.users.get(jid)).suspended:
                return
        except StoreUnavailable as error:
            _log.info("opml import delayed, store unavailable", user=uid, error=str(error))
            await asyncio.sleep(_CHECK_INTERVAL_S)
            return
        await self._send_result(jid, outcomes)

    async def _import_batch(
        self, jid: str, feeds: Sequence[OpmlSubscription], max_subscriptions: int
    ) -> list[tuple[str, _Outcome]]:
        """Subscribe the user ``jid`` to these feeds; return a pair (URL, outcome) for each feed.

        Raises StoreUnavailable if the store does not respond.
        """
        subscribed_ids = {subscription.channel for subscription in await self._store.subscriptions.of_user(jid)}
        free = max(0, max_subscriptions - len(subscribed_ids))
        new = [feed for feed in feeds if channel_id(feed.url) not in subscribed_ids]
        outcomes: list[_Outcome] = await asyncio.gather(*(self._import_feed(jid, feed) for feed in new[:free]))
        full = LimitReached("You've reached the maximum of {count} subscriptions.", count=max_subscriptions)
        outcomes += [full] * len(new[free:])
        existing = [(feed.url, False) for feed in feeds if channel_id(feed.url) in subscribed_ids]
        return [*existing, *zip((feed.url for feed in new), outcomes, strict=True)]

    async def _import_feed(self, jid: str, feed: OpmlSubscription) -> _Outcome:
        """Subscribe the user ``jid`` to a feed; return whether the subscription is new, or the error if it fails.

        Raises StoreUnavailable if the store does not respond.
        """
        try:
            cid = await self._find_or_create_channel(jid, feed)
            subscription, new = await subscribe_channel(self._store, jid, cid, self._max_subscriptions)
        except StoreUnavailable:
            raise
        except CoronetError as error:
            return error
        if new and (feed.title or feed.folder):  # keep the title of the list if it differs from the publisher's
            channel = await self._store.channels.get(subscription.channel)
            is_own_title = channel is not None and channel.title != feed.title
            own = Preferences(title=feed.title if is_own_title else "", folder=feed.folder)
            await self._store.preferences.put(jid, subscription.number, own)
        return new

    async def _find_or_create_channel(self, jid: str, feed: OpmlSubscription) -> ChannelId:
        """Return the id of the channel for a feed to which the user ``jid`` wants to subscribe.

        If the channel does not exist or has no subscriptions, a worker fetches the feed and creates the channel. Raises
        LimitReached if the user has reached the daily limit on feeds that must be fetched, and another CoronetError if
        the feed cannot be fetched.
        """
        channel = await self._store.channels.resolve(channel_id(feed.url))
        if channel is not None and not channel.dormant:
            return channel.id
        if not await self._store.users.count_use(jid, "import", self._max_subscriptions, _DAY_S):
            raise LimitReached(
                "You've reached today's maximum of {count} new addresses.", count=self._max_subscriptions
            )
        probed = await self._store.worker_requests.probe(feed.url, as_page=feed.page)
        if probed.channel is None:
            raise NotAFeed("There is a page that names no feed, or several.")
        return probed.channel.id

    async def _send_result(self, jid: str, outcomes: Sequence[tuple[str, _Outcome]]) -> None:
        (user_settings,) = await self._store.users.user_settings([user_id(jid)])
        translator = get_translator(user_settings.effective_language)
        failed = [(url, outcome) for url, outcome in outcomes if isinstance(outcome, CoronetError)]
        new = sum(outcome is True for _, outcome in outcomes)
        text = import_result_text(new, len(outcomes) - new - len(failed), failed, translator)
        content = stanzas.body(text) + stanzas.RECEIPT_REQUEST
        message_id = new_message_id(user_id(jid))
        await send_until_confirmed(self._xmpp, [stanzas.message(self._xmpp.address, jid, message_id, content)])
