"""Handlers of the requests that dialogues make for one user.

:class:`~bots.dialogue.read_requests.ReadRequests` contains the read-only requests. :class:`RequestHandler` adds
the requests that write. :class:`~bots.dialogue.dry_run.DryRun` has the same requests, but only describes what they
would change. Policy, such as limits, is decided by the dialogues rather than by the handlers.
"""

import contextlib
from collections.abc import Mapping
from urllib.parse import urlencode

from bots.dialogue.channel_activation import subscribe_channel
from bots.dialogue.dry_run import DryRun
from bots.dialogue.read_requests import ReadRequests
from service.discovery.queries.saved_searches import SavedSearch, SearchCondition
from service.errors import NotSubscribed, NoWorker
from service.feeds.canonical_urls import reader_of
from service.feeds.credentials import Credential
from service.feeds.opml_writer import OpmlDocument
from service.location.content_cache import MAX_LATEST_ENTRIES
from service.model import ChannelId, Entry
from service.store.coordination.worker_requests import ProbeReply
from service.store.people.erasure import RESTRICTIONS_KEPT_DAYS
from service.store.subscriptions.subscription_pauses import ResumeResult
from service.users.preferences import FOR_ALL, FULL_TEXT, NO_PREFERENCES, Preferences
from service.users.user_settings import UserSettings

_HOUR_S = 3600.0


class RequestHandler(ReadRequests):
    """Executes the requests for one user.

    When a method that changes something returns, the change is stored and in effect (guarantees I3, I5).
    """

    async def use_new_url_allowance(self) -> bool:
        """Count one new URL that the user has sent; return whether it is within the user's hourly limit."""
        return await self._store.users.count_use(self._jid, "url", self.settings.max_new_urls_per_hour, _HOUR_S)

    async def probe(self, url: str, *, as_page: bool, credential: Credential | None) -> ProbeReply:
        """Have a worker fetch a canonical URL and create a channel for the feed found there; return the worker's reply.

        If ``as_page`` is True, a channel for the page itself is created, even if the page links to a feed. If
        ``credential`` is not None, ``url`` is that of a protected channel, whose credential it becomes. Raises
        HostBlocked if an admin has blocked the host, and NoWorker if no worker replies.
        """
        self._on_slow_request()
        sealed = self._services.vault.seal(credential, url) if credential is not None else ""
        return await self._store.worker_requests.probe(url, as_page=as_page, credential=sealed)

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` of the latest entries of a channel, newest first.

        The entries are read from a worker's cache if ``count`` is at most ``MAX_LATEST_ENTRIES`` and a worker can
        supply them. Otherwise they are read from the store.
        """
        if count <= MAX_LATEST_ENTRIES:
            with contextlib.suppress(NoWorker, NotSubscribed):
                return (await self._store.worker_requests.content(cid)).latest[:count]
        return await self._store.channels.latest(cid, count)

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        """Subscribe the user to a channel; return the number of the subscription and whether it is new."""
        await self._store.home_addresses.keep(self._jid)
        subscription, new = await subscribe_channel(
            self._store, self._jid, cid, self.settings.max_subscriptions_per_user
        )
        if (await self.preferences()).get(FOR_ALL, NO_PREFERENCES).text_chars == FULL_TEXT:
            await self._store.channels.request_full_texts([subscription.channel])
        return subscription.number, new

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Unsubscribe the user from a channel, and return whether the user was subscribed.

        No notification about the channel is sent after the method returns. The user's own protected channel is deleted.
        """
        async with self._services.delivery.pause_user(self._jid):
            was_subscribed = await self._store.subscriptions.unsubscribe(self._jid, cid)
        channel = await self._store.channels.get(cid)
        if channel is not None and reader_of(channel.url) == self._uid:
            await self._store.remove_channel(cid)
        return was_subscribed

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Pause the delivery of channels; return the channels that were not already paused.

        If ``watches`` is true, all saved searches of the user are also paused.
        """
        async with self._services.delivery.pause_user(self._jid):
            return await self._store.pauses.pause(self._jid, cids, saved_searches=watches)

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Resume the delivery of channels; return how much was withheld during the pause.

        If ``watches`` is true, all saved searches of the user are also resumed. The result contains the number of
        withheld versions of each channel, and the number of withheld matches of saved searches.
        """
        return await self._store.pauses.resume(self._jid, cids, saved_searches=watches)

    async def set_user_settings(self, user_settings: UserSettings) -> None:
        """Store the user's settings: language, time zone, quiet hours and digests."""
        await self._store.users.set_user_settings(self._jid, user_settings)
        self._services.delivery.on_settings_changed(self._jid)
        if user_settings.heeds_presence:
            self._services.delivery.request_presence(self._jid)

    async def set_preferences(self, number: int, preferences: Preferences) -> None:
        """Store the preferences for subscription ``number``, for a folder if it is negative, or for ``FOR_ALL``."""
        async with self._services.delivery.pause_user(self._jid):
            await self._store.preferences.put(self._jid, number, preferences)
            self._services.delivery.on_settings_changed(self._jid)
        if preferences.text_chars == FULL_TEXT:
            subscribed = await self._store.subscriptions.of_user(self._jid)
            channel_ids = [each.channel for each in subscribed if number in (FOR_ALL, each.number)]
            await self._store.channels.request_full_texts(channel_ids)

    async def watch(self, condition: SearchCondition, text: str) -> SavedSearch:
        """Save a search, so that the user is sent new entries that satisfy ``condition``.

        ``text`` is the search as it is shown to the user.
        """
        return await self._store.saved_searches.add(self._jid, condition, text, self.settings.max_watches_per_user)

    async def unwatch(self, number: int) -> SavedSearch | None:
        """Delete the saved search ``number`` and return it; return None if the user has none with this number."""
        return await self._store.saved_searches.remove(self._jid, number)

    async def share(self, name: str, body: bytes, media_type: str) -> str | None:
        """Upload a file to the XMPP server and return its URL.

        Return None if the server has no upload service. Raises UploadRefused if the service refuses the file or does
        not finish in time.
        """
        self._on_slow_request()
        return await self._services.uploads.share(name, body, media_type)

    async def import_feeds(self, document: OpmlDocument) -> None:
        """Queue the feeds of a list for import in the background; the user gets a message when it has finished."""
        await self._services.opml_importer.add(self._jid, document)

    async def stop_import(self) -> bool:
        """Drop the feeds that are queued for import; return whether there were any."""
        return await self._store.user_imports.stop(self._uid)

    async def feed_url(self, chosen: Mapping[str, str]) -> str:
        """Return the secret URL of one of the user's Atom feeds.

        ``chosen`` names the number of the subscription ("channel") or the folder; the feed of all is nameless.
        """
        url = (
            f"{self.settings.console_public_url.rstrip('/')}/feeds/{await self._store.feed_links.token(self._uid)}.atom"
        )
        return f"{url}?{urlencode(chosen)}" if chosen else url

    async def revoke_feeds(self) -> None:
        """Make the secret URLs of the user's Atom feeds invalid."""
        await self._store.feed_links.revoke(self._uid)

    async def set_webhook(self, url: str) -> str:
        """Set the user's webhook to a canonical URL; return the secret with which requests to it are signed.

        If ``url`` is "", end the webhook, if there is one.
        """
        return await self._services.webhooks.set_webhook(self._jid, url)

    async def accept_invitation(self, code: str) -> bool:
        """Redeem an invitation code; return whether the user may now use the bot."""
        return await self._services.access.redeem_code(self._jid, code)

    async def forget_everything(self) -> int:
        """Delete all data of the user, except restrictions that admins have imposed on the user.

        Return for how many days the restrictions are kept, or 0 if there are none.
        """
        await self._services.opml_importer.stop(self._jid)
        await self._services.webhooks.set_webhook(self._jid, "")
        async with self._services.delivery.pause_user(self._jid):
            await self._services.delivery.remove_contact(self._jid)
            is_restricted = await self._store.erasure.erase(self._jid)
            self._services.delivery.forget_user(self._jid)
        return RESTRICTIONS_KEPT_DAYS if is_restricted else 0


Requests = RequestHandler | DryRun
"""The requests that dialogues make; mypy checks that both handlers have every method."""
