"""The dry run of commands: describes the effects of the requests that write, instead of executing them.

:class:`DryRun` has the same methods as :class:`~bots.dialogue.request_handler.RequestHandler`. It inherits no writing
method, so a new request fails in a dry run until its effect is described here.
"""

from bots.dialogue.bot_services import BotServices
from bots.dialogue.read_requests import ReadRequests
from service.discovery.queries.saved_searches import SavedSearch, SearchCondition
from service.errors import LimitReached
from service.feeds.canonical_urls import host_of
from service.feeds.opml_writer import OpmlSubscription
from service.model import Channel, ChannelId, Entry
from service.store.coordination.worker_requests import ProbeReply
from service.store.subscriptions.subscription_pauses import ResumeResult
from service.users.preferences import Preferences
from service.users.user_settings import UserSettings


class DryRun(ReadRequests):
    """The requests of one user in a dry run: they change nothing.

    ``effects`` lists, in English sentences, the changes that the requests would make.
    """

    def __init__(self, services: BotServices, jid: str, language: str, max_subscriptions: int | None) -> None:
        """Create the requests of the user ``jid``, who gets replies in ``language`` (RFC 5646).

        ``max_subscriptions`` is the limit that an admin has set for the user, or None for the default limit.
        """
        super().__init__(services, jid, language, max_subscriptions)
        self.effects: list[str] = []
        self._probed: dict[ChannelId, Channel] = {}

    async def use_new_url_allowance(self) -> bool:
        """Return True: a dry run does not count new URLs."""
        return True

    async def probe(self, url: str, *, as_page: bool) -> ProbeReply:
        """Let a worker fetch a canonical URL without creating a channel, and return the feed or feeds found there.

        If ``as_page`` is True, the page itself is probed, even if the page names a feed. Raises HostBlocked if an admin
        has blocked the host, and NoWorker if no worker replies.
        """
        probed = await self._store.worker_requests.probe(url, as_page=as_page, keep=False)
        if probed.channel is not None:
            self._probed[probed.channel.id] = probed.channel
            if await self._store.channels.get(probed.channel.id) is None:
                self.effects.append(f"Create a channel for {probed.channel.url}.")
        return probed

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` latest entries of a channel from the store, newest first."""
        return await self._store.channels.latest(cid, count)

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        """Return the number that the subscription has or would get, and whether the subscription would be new."""
        channel = await self._find_channel(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        for each in await self._store.subscriptions.of_user(self._jid):
            if each.channel == cid:
                return each.number, False
        self.effects.append(f"Subscribe the user to {_name(channel)}.")
        return await self._store.users.next_number(self._jid, "numbers"), True

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Return whether the user is subscribed to the channel; the subscription stays."""
        is_subscribed = any(each.channel == cid for each in await self._store.subscriptions.of_user(self._jid))
        if is_subscribed:
            self.effects.append(f"Unsubscribe the user from {_name(await self._find_channel(cid))}.")
        return is_subscribed

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Return the channels among ``cids`` that are not paused. Nothing is paused.

        ``watches`` states whether all saved searches would be paused, too.
        """
        subscriptions = await self._store.subscriptions.of_user(self._jid)
        awake = [each.channel for each in subscriptions if each.channel in cids and each.paused_version is None]
        self.effects.append(f"Pause {len(awake):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return awake

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Return the paused channels among ``cids``, each with the number of its versions since it was paused.

        Nothing is resumed. If ``watches`` is true, the result states that saved searches would be resumed, too.
        """
        subscriptions = [each for each in await self._store.subscriptions.of_user(self._jid) if each.channel in cids]
        paused = {each.channel: each.paused_version for each in subscriptions if each.paused_version is not None}
        channels = await self._store.channels.get_many(list(paused))
        withheld = {each.id: max(0, each.version - paused[each.id]) for each in channels if each is not None}
        self.effects.append(f"Resume {len(paused):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return ResumeResult(withheld, saved_searches_resumed=watches)

    async def set_user_settings(self, _user_settings: UserSettings) -> None:
        """Record, as an effect, that the user's settings would change."""
        self.effects.append("Change the user's settings.")

    async def set_preferences(self, number: int, _preferences: Preferences) -> None:
        """Record, as an effect, that the preferences for subscription ``number`` would change."""
        self.effects.append(f"Change the preferences for {f'#{number}' if number else 'all subscriptions'}.")

    async def watch(self, condition: SearchCondition, text: str) -> SavedSearch:
        """Return the saved search with this condition, or, if none exists, the saved search that would be created."""
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
        """Return the saved search ``number`` without deleting it.

        The result is None if the user has no saved search with this number.
        """
        watch = next((each for each in await self.watches() if each.number == number), None)
        if watch is not None:
            self.effects.append(f"Delete saved search #{number}.")
        return watch

    async def share(self, _name: str, _body: bytes, _media_type: str) -> None:
        """Record the upload as an effect, and return None, as if the server had no upload service."""
        self.effects.append("Send the list as a file if the server accepts uploads, and as messages otherwise.")

    async def import_feeds(self, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Record, as an effect, that the user would be subscribed to these feeds."""
        self.effects.append(f"Import {len(feeds):,} feeds.")

    async def accept_invitation(self, code: str) -> bool:
        """Return whether the user has access to the bot, or would get access by the invitation code."""
        self.effects.append("Redeem the invitation code, if it is valid.")
        return await self._services.access.has_access(self._jid) or await self._store.invitations.is_valid(code)

    async def forget_everything(self) -> int:
        """Return 0, and record the deletion of the user's data as an effect."""
        self.effects.append("Delete all data of the user, except restrictions by admins.")
        return 0

    async def _find_channel(self, cid: ChannelId) -> Channel | None:
        return self._probed.get(cid) or await self._store.channels.get(cid)


_AND_WATCHES = ", and the saved searches"


def _name(channel: Channel | None) -> str:
    return (channel.title or channel.url) if channel else "a removed channel"
