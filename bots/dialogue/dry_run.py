"""The dry run of commands: records what the requests of a command would change, without changing it.

:class:`DryRun` has the same methods as :class:`~bots.dialogue.request_handler.RequestHandler`. It inherits no method
that writes. Therefore a newly added request that writes fails in a dry run until its effect is described here.
"""

from collections.abc import Mapping

from bots.dialogue.bot_services import BotServices
from bots.dialogue.read_requests import ReadRequests
from service.discovery.queries.saved_searches import SavedSearch, SearchCondition
from service.errors import LimitReached, UserError
from service.feeds.canonical_urls import host_of
from service.feeds.credentials import Credential
from service.feeds.opml_writer import OpmlDocument
from service.model import Channel, ChannelId, Entry
from service.store.coordination.worker_requests import ProbeReply
from service.store.subscriptions.subscription_pauses import ResumeResult
from service.users.preferences import FOR_ALL, Preferences
from service.users.user_settings import UserSettings


class DryRun(ReadRequests):
    """Handles the requests of one user in a dry run, which changes nothing.

    ``effects`` lists the changes that the requests would make, as English sentences.
    """

    def __init__(self, services: BotServices, jid: str, language: str, max_subscriptions: int | None) -> None:
        """Create the request handler for the user ``jid``, who gets replies in ``language`` (RFC 5646).

        ``max_subscriptions`` is the limit that an admin has set for the user, or None for the default limit.
        """
        super().__init__(services, jid, language, max_subscriptions)
        self.effects: list[str] = []
        self._probed: dict[ChannelId, Channel] = {}

    async def use_new_url_allowance(self) -> bool:
        """Return True, because a dry run does not count new URLs."""
        return True

    async def probe(self, url: str, *, as_page: bool, credential: Credential | None) -> ProbeReply:
        """Have a worker fetch a canonical URL; return the feed or feeds found there, without creating a channel.

        If ``as_page`` is True, the page itself is probed, even if it links to a feed. Raises HostBlocked if an admin
        has blocked the host, NoWorker if no worker replies, and UserError if ``credential`` is not None.
        """
        if credential is not None:
            raise UserError("A dry run does not try logins.")
        probed = await self._store.worker_requests.probe(url, as_page=as_page, keep=False)
        if probed.channel is not None:
            self._probed[probed.channel.id] = probed.channel
            if await self._store.channels.get(probed.channel.id) is None:
                self.effects.append(f"Create a channel for {probed.channel.url}.")
        return probed

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` of the latest entries of a channel, newest first, as they are in the store."""
        return await self._store.channels.latest(cid, count)

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        """Return (number, is_new): the number that the subscription has or would get, and whether it would be new."""
        channel = await self._find_channel(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        for each in await self._store.subscriptions.of_user(self._jid):
            if each.channel == cid:
                return each.number, False
        self.effects.append(f"Subscribe the user to {_name(channel)}.")
        return await self._store.users.next_number(self._jid, "numbers"), True

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Return whether the user is subscribed to the channel, without ending the subscription."""
        is_subscribed = any(each.channel == cid for each in await self._store.subscriptions.of_user(self._jid))
        if is_subscribed:
            self.effects.append(f"Unsubscribe the user from {_name(await self._find_channel(cid))}.")
        return is_subscribed

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Return which of the channels ``cids`` would be paused, that is, are not paused yet.

        ``watches`` states whether all saved searches would also be paused.
        """
        subscriptions = await self._store.subscriptions.of_user(self._jid)
        awake = [each.channel for each in subscriptions if each.channel in cids and each.paused_version is None]
        self.effects.append(f"Pause {len(awake):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return awake

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Return what would be resumed: for each paused channel in ``cids``, how many versions have been withheld.

        If ``watches`` is true, the result states that saved searches would also be resumed.
        """
        subscriptions = [each for each in await self._store.subscriptions.of_user(self._jid) if each.channel in cids]
        paused = {each.channel: each.paused_version for each in subscriptions if each.paused_version is not None}
        channels = await self._store.channels.get_many(list(paused))
        withheld = {each.id: max(0, each.version - paused[each.id]) for each in channels if each is not None}
        self.effects.append(f"Resume {len(paused):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return ResumeResult(withheld, saved_searches_resumed=watches)

    async def set_user_settings(self, _user_settings: UserSettings) -> None:
        """Record in ``effects`` that the user's settings would change."""
        self.effects.append("Change the user's settings.")

    async def set_preferences(self, number: int, _preferences: Preferences) -> None:
        """Record in ``effects`` that the preferences for subscription or folder ``number`` would change."""
        target = f"#{number}" if number > FOR_ALL else "all subscriptions" if number == FOR_ALL else "a folder"
        self.effects.append(f"Change the preferences for {target}.")

    async def watch(self, condition: SearchCondition, text: str) -> SavedSearch:
        """Return the user's saved search with this condition; if there is none, return the one that would be created.

        Raises LimitReached if the user already has the maximum number of saved searches.
        """
        subscriptions = await self.watches()
        for each in subscriptions:
            if each.condition == condition:
                return each
        if len(subscriptions) >= self.settings.max_watches_per_user:
            raise LimitReached(
                "You already have {most} saved searches, and that's the maximum. To make room, delete one with "
                "`unwatch #n`.",
                most=self.settings.max_watches_per_user,
            )
        self.effects.append("Save this search.")
        return SavedSearch("", condition, await self._store.users.next_number(self._jid, "watches"), text)

    async def unwatch(self, number: int) -> SavedSearch | None:
        """Return the saved search ``number`` without deleting it, or None if the user has none with this number."""
        watch = next((each for each in await self.watches() if each.number == number), None)
        if watch is not None:
            self.effects.append(f"Delete saved search #{number}.")
        return watch

    async def share(self, _name: str, _body: bytes, _media_type: str) -> None:
        """Record the upload in ``effects``; return None, as if the server had no upload service."""
        self.effects.append("Send the list as a file if the server accepts uploads, and as messages otherwise.")

    async def import_feeds(self, document: OpmlDocument) -> None:
        """Record in ``effects`` that the user would be subscribed to the feeds of a list."""
        self.effects.append(f"Import {len(document.feeds):,} feeds.")

    async def stop_import(self) -> bool:
        """Return whether feeds are queued for import; if so, record in ``effects`` that they would be dropped."""
        progress = await self.import_progress()
        if is_running := progress is not None and bool(progress.pending):
            self.effects.append("Stop the import of a list.")
        return is_running

    async def feed_url(self, _chosen: Mapping[str, str]) -> str:
        """Record in ``effects`` that the user would be shown the URL of a feed; return a URL without the secret."""
        self.effects.append("Show the secret address of a feed.")
        return f"{self.settings.console_public_url.rstrip('/')}/feeds/….atom"

    async def revoke_feeds(self) -> None:
        """Record in ``effects`` that the secret URLs of the user's feeds would become invalid."""
        self.effects.append("Make the addresses of the user's feeds invalid.")

    async def set_webhook(self, url: str) -> str:
        """Record in ``effects`` that the user's webhook would be set or ended; return a placeholder for the secret."""
        self.effects.append(f"Set the user's webhook to {url}." if url else "End the user's webhook.")
        return "whsec_…"

    async def accept_invitation(self, code: str) -> bool:
        """Return whether the user has access to the bot, or would get access with this invitation code."""
        self.effects.append("Redeem the invitation code, if it is valid.")
        return await self._services.access.has_access(self._jid) or await self._store.invitations.is_valid(code)

    async def forget_everything(self) -> int:
        """Record in ``effects`` that the user's data would be deleted; return 0."""
        self.effects.append("Delete all data of the user, except restrictions by admins.")
        return 0

    async def _find_channel(self, cid: ChannelId) -> Channel | None:
        return self._probed.get(cid) or await self._store.channels.get(cid)


_AND_WATCHES = ", and the saved searches"


def _name(channel: Channel | None) -> str:
    return (channel.title or channel.url) if channel else "a removed channel"
