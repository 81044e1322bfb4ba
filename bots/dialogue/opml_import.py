"""Importer of OPML lists: subscribes users, in the background, to the feeds in lists that they have sent to the bot.

While a long import runs, one message says how far it is. Corrections (XEP-0308) keep it up to date. At the end, a new
message has the result. If many feeds failed, a file with the reasons follows (XEP-0363).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from bots.cluster.partitions import AssignedUsers
from bots.dialogue.channel_activation import subscribe_channel
from bots.i18n.translator import Translator, get_translator
from bots.replies.subscription_texts import import_failure_text, import_progress_text, import_result_text
from bots.xmpp import stanzas
from bots.xmpp.file_upload import FileUploader
from bots.xmpp.interface import XmppSender, send_until_confirmed
from bots.xmpp.message_ids import new_message_id
from service.asyncio_tasks import cancel_and_wait, run_until_one_ends
from service.errors import LimitReached, StoreUnavailable, UploadRefused
from service.feeds.canonical_urls import channel_id
from service.feeds.opml_import import FailedFeed, ImportProgress, write_failures
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.model import ChannelId, Subscription, UserId
from service.opml_import_runner import ImportRunner
from service.store import Store
from service.store.client.keys import user_id
from service.users.preferences import NO_PREFERENCES, Preferences

MAX_PARALLEL: Final = 16
"""Maximum number of users whose feeds are imported in parallel."""
PROGRESS_INTERVAL_S = 10.0
"""Seconds until the first message about the progress, and between its corrections at first."""
_PROGRESS_SHARE: Final = 0.02
"""The interval between two corrections is at least this share of the time since the first message."""
_MAX_LISTED_FAILURES: Final = 5
"""Maximum number of failed feeds that a message lists, if the server takes files."""
_CHECK_INTERVAL_S = 5.0
_DAY_S = 86_400.0
_log = structlog.get_logger()


class OpmlImporter:
    """Subscribes the users of one bot process to the feeds in their OPML lists, while :meth:`run` is running."""

    def __init__(
        self,
        store: Store,
        xmpp: XmppSender,
        assigned_users: AssignedUsers,
        uploads: FileUploader,
        max_subscriptions: int,
    ) -> None:
        """Create an importer for the users assigned to this process.

        Users are sent messages about their imports through ``xmpp``, and files through ``uploads``. A user may have up
        to ``max_subscriptions`` subscriptions, unless an admin has set another limit for the user.
        """
        self._assigned_users = assigned_users
        self._store = store
        self._jobs = store.user_imports
        self._runner = ImportRunner(store, store.user_imports)
        self._xmpp = xmpp
        self._uploads = uploads
        self._max_subscriptions = max_subscriptions
        self._wakeup = asyncio.Event()
        self._tasks: dict[UserId, asyncio.Task[None]] = {}

    async def add(self, jid: str, document: OpmlDocument) -> None:
        """Add the feeds of a list to the durable queue of feeds to import for the user ``jid``.

        Raises LimitReached if too many feeds would be queued for the user.
        """
        await self._jobs.add(jid, document, self._xmpp.address)
        self._wakeup.set()

    async def stop(self, jid: str) -> None:
        """Drop the import of the user ``jid``, because the user's data is being deleted."""
        await self._jobs.stop(user_id(jid))
        await self._jobs.end(user_id(jid), self._xmpp.address)
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
        for uid in await self._assigned_users.select(await self._jobs.users(self._xmpp.address)):
            if uid not in self._tasks and len(self._tasks) < MAX_PARALLEL:
                task = self._tasks[uid] = asyncio.create_task(self._import(uid))
                task.add_done_callback(partial(self._on_task_done, uid))

    def _on_task_done(self, uid: UserId, _task: asyncio.Task[None]) -> None:
        self._tasks.pop(uid, None)
        self._wakeup.set()

    async def _import(self, uid: UserId) -> None:
        try:
            (jid,) = await self._store.users.jids([uid])
            progress = await self._jobs.progress(uid)
            if progress is not None:
                held = {each.channel: each for each in await self._store.subscriptions.of_user(jid)}
                add = partial(self._add, jid, held, set[str](), progress.started_s)
                await run_until_one_ends(self._runner.run(uid, add), self._show_progress(jid))
                await self._show_result(jid)
            await self._jobs.end(uid, self._xmpp.address)
        except StoreUnavailable as error:
            _log.info("opml import delayed, store unavailable", user=uid, error=str(error))
            await asyncio.sleep(_CHECK_INTERVAL_S)

    async def _add(
        self, jid: str, held: dict[ChannelId, Subscription], counted: set[str], started_s: float, feed: OpmlSubscription
    ) -> bool:
        """Subscribe the user ``jid`` to a feed; return whether this import has created the subscription.

        This method adds to ``held``, the user's subscriptions, and to ``counted``, the URLs that were counted towards
        the user's daily limit. A subscription since ``started_s`` (Unix s) may be one of this import, from before a
        crash. Raises RetryLater if the feed cannot be looked at now.
        """
        user = await self._store.users.get(jid)
        if user.suspended:
            await self._jobs.stop(user_id(jid))
            return False
        limit = self._max_subscriptions if user.most_subscriptions is None else user.most_subscriptions
        channel = await self._store.channels.resolve(channel_id(feed.url))
        subscription, is_new = held.get(channel.id) if channel is not None else None, False
        if subscription is None:
            if len(held) >= limit:
                raise LimitReached("You've reached the maximum of {count} subscriptions.", count=limit)
            if channel is None or channel.dormant:
                if feed.url not in counted and not await self._store.users.count_use(jid, "import", limit, _DAY_S):
                    raise LimitReached("You've reached today's maximum of {count} new addresses.", count=limit)
                counted.add(feed.url)
                cid = await self._runner.find_or_create_channel(feed)
            else:
                cid = channel.id
            subscription, is_new = await subscribe_channel(self._store, jid, cid, self._max_subscriptions)
            held[subscription.channel] = subscription
        if not is_new and subscription.since_s < started_s:
            return False
        channel = await self._store.channels.get(subscription.channel)
        # The title of the list is kept if it differs from the publisher's.
        title = feed.title if channel is not None and channel.title != feed.title else ""
        if (own := Preferences(title=title, folder=feed.folder)) != NO_PREFERENCES:
            await self._store.preferences.put(jid, subscription.number, own)
        return True

    async def _show_progress(self, jid: str) -> None:
        """Send a message about the progress of an import, and correct it while the import runs, until cancelled."""
        loop, done = asyncio.get_running_loop(), 0
        began_s = loop.time()
        while True:
            await asyncio.sleep(max(PROGRESS_INTERVAL_S, _PROGRESS_SHARE * (loop.time() - began_s)))
            progress = await self._jobs.progress(user_id(jid))
            if progress is not None and progress.pending and progress.done != done:
                done, is_first = progress.done, await self._jobs.mark_shown(user_id(jid))
                await send_until_confirmed(self._xmpp, [await self._progress_message(jid, progress, is_first=is_first)])

    async def _show_result(self, jid: str) -> None:
        """Send a message with the result of an import, unless the user is suspended."""
        uid = user_id(jid)
        progress = await self._jobs.progress(uid)
        if progress is None or (await self._store.users.get(jid)).suspended:
            return
        failed, translator = await self._jobs.failed(uid), await self._translator(jid)
        file_url = await self._share(failed, translator) if len(failed) > _MAX_LISTED_FAILURES else None
        given = (progress.new, progress.existing, failed, translator)
        # In a thread, because thousands of sentences are translated.
        text = await asyncio.to_thread(import_result_text, *given, has_file=file_url is not None)
        # The same ids after a crash, so that clients recognise messages that are sent again.
        message_id = f"{uid}.{progress.id}.{progress.done}"
        messages = [self._message(jid, message_id, stanzas.body(text) + stanzas.RECEIPT_REQUEST)]
        if not await self._jobs.mark_shown(uid):
            messages.insert(0, await self._progress_message(jid, progress, is_first=False))
        if file_url is not None:
            messages.append(self._message(jid, f"{message_id}.file", stanzas.shared_file(file_url)))
        await send_until_confirmed(self._xmpp, messages)

    async def _share(self, failed: Sequence[FailedFeed], translator: Translator) -> str | None:
        """Upload a file that lists the failed feeds; return its URL, or None if the server takes no file."""
        rows = ((each.line, each.url, import_failure_text(each, translator)) for each in failed)
        file = await asyncio.to_thread(write_failures, rows)
        await self._xmpp.connected.wait()
        with contextlib.suppress(UploadRefused):
            return await self._uploads.share("import-errors.csv", file, "text/csv")
        return None

    async def _progress_message(self, jid: str, progress: ImportProgress, *, is_first: bool) -> str:
        """Return the first message about the progress of an import, or a correction of it."""
        content = stanzas.body(import_progress_text(progress, await self._translator(jid)))
        first_id = f"{user_id(jid)}.{progress.id}"
        if is_first:
            return self._message(jid, first_id, content)
        return self._message(jid, new_message_id(user_id(jid)), content + stanzas.correction(first_id))

    async def _translator(self, jid: str) -> Translator:
        (user_settings,) = await self._store.users.user_settings([user_id(jid)])
        return get_translator(user_settings.effective_language)

    def _message(self, jid: str, message_id: str, content: str) -> str:
        kind = "groupchat" if jid in self._xmpp.rooms else "chat"
        return stanzas.message(self._xmpp.address, jid, message_id, content, kind=kind)
