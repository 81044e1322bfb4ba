"""Handlers of the requests that dialogues make for one user: one handler executes them, the other is a dry run.

:class:`ReadRequests` has the requests that only read the store. :class:`RequestHandler` adds the requests that write.
:class:`DryRun` has the same methods as :class:`RequestHandler`, but only describes their effects. It inherits no
writing method, so a new request fails in a dry run until its effect is described there. The dialogues, not the
handlers, decide on policy like limits.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

from bots.dialogue.bot_services import BotServices
from bots.dialogue.opml_import import subscribe_channel
from bots.i18n.translator import get_translator
from bots.pubsub.atom_items import node_uri
from bots.replies.formatting import SubscribedChannel
from service.corona.optimizer.poll_explanation import PollExplanation
from service.discovery.discover import DiscoverAnswer, DiscoverOrder
from service.discovery.queries.query import Query, SearchAnswer, SearchHit
from service.discovery.queries.saved_searches import SavedSearch, SearchCondition
from service.errors import LimitReached, NotSubscribed, NoWorker
from service.feeds.canonical_urls import host_of
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.location.content_cache import MAX_LATEST_ENTRIES
from service.model import Channel, ChannelId, Entry, Subscription
from service.store.client.keys import user_id
from service.store.coordination.worker_requests import ProbeReply
from service.store.delivery.outbox import Batch, MessageId, SentMessage
from service.store.people.erasure import RESTRICTIONS_KEPT_DAYS
from service.store.subscriptions.subscription_pauses import ResumeResult
from service.users.preferences import FOR_ALL, NO_PREFERENCES, Preferences, PreferencesByNumber
from service.users.quiet_hours import UserSettings

_HOUR_S = 3600.0


class MessageReferences(msgspec.Struct, frozen=True):
    """The channels that a message of the bot was about, and the saved searches that caused the message.

    ``watches`` are the numbers of the saved searches.
    """

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]


class ReadRequests:
    """The requests of one user that only read. Each method may raise a CoronetError."""

    def __init__(
        self,
        services: BotServices,
        jid: str,
        language: str = "",
        max_subscriptions: int | None = None,
        on_slow_request: Callable[[], None] | None = None,
    ) -> None:
        """Create the requests of the user ``jid``, who gets replies in ``language`` (RFC 5646).

        ``max_subscriptions`` is the limit that an admin has set for the user, or None for the default limit.
        ``on_slow_request`` is called before requests that can take seconds.
        """
        self.translator = get_translator(language)
        self.settings = services.settings
        self.max_subscriptions = (
            services.settings.max_subscriptions_per_user if max_subscriptions is None else max_subscriptions
        )
        self._services = services
        self._store = services.store
        self._jid = jid
        self._uid = user_id(jid)
        self._on_slow_request = on_slow_request or (lambda: None)

    def now_s(self) -> float:
        """Return the current Unix time."""
        return self._services.clock.wall_s()

    async def channel(self, cid: ChannelId) -> Channel | None:
        """Return a channel, or its successor if the channel has moved; None if it does not exist."""
        return await self._store.channels.resolve(cid)

    async def subscriptions(self) -> tuple[SubscribedChannel, ...]:
        """Return the user's subscriptions in the order of their numbers."""
        subscriptions, preferences = await asyncio.gather(
            self._store.subscriptions.of_user(self._jid), self.preferences()
        )
        channels = await self._store.channels.get_many([subscription.channel for subscription in subscriptions])
        pairs = zip(subscriptions, channels, strict=True)
        return tuple(
            subscribed_channel(subscription, channel, preferences) for subscription, channel in pairs if channel
        )

    async def explain_polling(self, cid: ChannelId) -> PollExplanation:
        """Return how often a channel is polled and why.

        Raises HostBlocked for a channel that an admin has blocked, AssignmentPending if the channel's owner has not
        planned its polls yet, and NoWorker if no worker responds.
        """
        channel = await self._store.channels.get(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        return await self._store.worker_requests.explain(cid)

    async def pubsub_uri(self, cid: ChannelId) -> str:
        """Return the ``xmpp:`` URI of the pubsub node of a channel, or "" if it has none."""
        service = self.settings.pubsub_service
        position = (await self._store.pubsub_nodes.positions(service, [cid])).get(cid) if service else None
        return node_uri(service, cid) if position is not None and position.version else ""

    async def health(self, cids: tuple[ChannelId, ...]) -> tuple[int, dict[ChannelId, tuple[str, float]]]:
        """Return the number of running workers, and the channels among ``cids`` whose polls fail.

        Each failing channel has the outcome of its last poll ("" if unknown), and the Unix time of the first failure.
        """
        workers, states = await asyncio.gather(self._store.ring.nodes(), self._store.channels.states(cids))
        failing = {}
        for state in states:
            if state is not None and state.failing_since_s is not None:
                last = await self._store.channels.polls(state.channel.id, 1)
                failing[state.channel.id] = (last[0].outcome if last else "", state.failing_since_s)
        return len(workers), failing

    async def user_settings(self) -> UserSettings:
        """Return the user's settings: language, time zone, quiet hours and digests."""
        return (await self._store.users.user_settings([self._uid]))[0]

    async def preferences(self) -> PreferencesByNumber:
        """Return the user's preferences by subscription number; ``FOR_ALL`` is the number for all subscriptions."""
        return (await self._store.preferences.of_users([self._uid]))[0]

    async def search(self, query: Query) -> SearchAnswer:
        """Return the channels or entries that match a query. Raises CellsUnavailable.

        Matches in private channels to which the user is subscribed come first.
        """
        search, language = self._services.search, (await self.user_settings()).effective_language
        own, public = await asyncio.gather(search.find_own(self._jid, query), search.find(query, language))
        hits = self._without_small_counts((*own, *public.hits))
        has_more = public.has_more or len(hits) > query.limit
        return SearchAnswer(hits[: query.limit], () if own else public.corrections, has_more)

    async def discover(self, order: DiscoverOrder, language: str, topic: str, limit: int) -> DiscoverAnswer:
        """Return up to ``limit`` public channels in this order, of a language and a topic unless they are "".

        Raises BadQuery for an invalid language or topic, and CellsUnavailable.
        """
        answer = await self._services.search.discover(order, language, topic, limit)
        return msgspec.structs.replace(answer, hits=self._without_small_counts(answer.hits))

    def _without_small_counts(self, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
        """Return search results, from which numbers of subscribers that are too small to be disclosed are removed."""
        least = self.settings.public_from_subscribers
        return tuple(hit if hit.subscribers >= least else msgspec.structs.replace(hit, subscribers=0) for hit in hits)

    async def watches(self) -> tuple[SavedSearch, ...]:
        """Return the user's saved searches in the order of their numbers."""
        return tuple(await self._store.saved_searches.of_user(self._jid))

    async def read_list(self, url: str) -> OpmlDocument:
        """Return the OPML list at a canonical URL.

        A worker fetches the list, unless the URL is that of a file on the XMPP server.
        """
        self._on_slow_request()
        if self._services.uploads.files.is_own(url):
            return await self._services.opml_parser_client.read(lambda: self._services.uploads.files.read(url))
        return await self._store.worker_requests.outline(url)

    async def read_list_text(self, text: str) -> OpmlDocument:
        """Return the OPML list that ``text`` contains."""
        self._on_slow_request()
        return await self._services.opml_parser_client.read(lambda: _encoded(text))

    async def message_references(self, message_id: MessageId) -> MessageReferences | None:
        """Return the channels and saved searches that a message of the bot was about.

        Returns None if the message is unknown, or was about no channel and no saved search.
        """
        (sent,), in_flight = await asyncio.gather(
            self._store.outbox.sent_messages([self._uid]), self._store.outbox.in_flight([self._uid])
        )
        messages: list[SentMessage | Batch] = [*sent, *in_flight[self._uid]]
        items = [item for one in messages if one.message_id == message_id for item in one.items]
        if not items:
            return None
        watches = {watch.number for item in items for watch in item.matches or ()}
        return MessageReferences(tuple(dict.fromkeys(item.channel for item in items)), tuple(sorted(watches)))


class RequestHandler(ReadRequests):
    """The requests of one user, executed: a change is durable and in effect when its method returns (I3, I5)."""

    async def use_new_url_allowance(self) -> bool:
        """Count one new URL of the user, and return whether the user's hourly limit allows it."""
        return await self._store.users.count_use(self._jid, "url", self.settings.max_new_urls_per_hour, _HOUR_S)

    async def probe(self, url: str, *, as_page: bool) -> ProbeReply:
        """Let a worker fetch a canonical URL and create the channel of the feed found there; return the result.

        If ``as_page`` is True, a channel for the page itself is created, even if the page names a feed.
        """
        self._on_slow_request()
        return await self._store.worker_requests.probe(url, as_page=as_page)

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` latest entries of a channel, newest first.

        A few entries are read from a worker's cache. Many entries are read from the store, and so are all entries if no
        worker replies.
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
        return subscription.number, new

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Unsubscribe the user from a channel, and return whether the user was subscribed.

        No notification about the channel is sent after the method returns.
        """
        async with self._services.delivery.pause_user(self._jid):
            return await self._store.subscriptions.unsubscribe(self._jid, cid)

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Pause channels, and all saved searches if ``watches``; return the channels that were not paused before."""
        async with self._services.delivery.pause_user(self._jid):
            return await self._store.pauses.pause(self._jid, cids, saved_searches=watches)

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Resume channels, and all saved searches if ``watches``.

        Return the numbers of versions of channels and of matches of saved searches withheld during the pause.
        """
        return await self._store.pauses.resume(self._jid, cids, saved_searches=watches)

    async def set_user_settings(self, user_settings: UserSettings) -> None:
        """Store the user's settings: language, time zone, quiet hours and digests."""
        await self._store.users.set_user_settings(self._jid, user_settings)
        self._services.delivery.on_settings_changed(self._jid)
        if user_settings.heeds_presence:
            self._services.delivery.request_presence(self._jid)

    async def set_preferences(self, number: int, preferences: Preferences) -> None:
        """Store preferences for the subscription ``number``; the number ``FOR_ALL`` stands for all subscriptions."""
        async with self._services.delivery.pause_user(self._jid):
            await self._store.preferences.put(self._jid, number, preferences)
            self._services.delivery.on_settings_changed(self._jid)

    async def watch(self, condition: SearchCondition, text: str) -> SavedSearch:
        """Save the search ``text``; new entries that satisfy its ``condition`` are sent to the user."""
        return await self._store.saved_searches.add(self._jid, condition, text, self.settings.max_watches_per_user)

    async def unwatch(self, number: int) -> SavedSearch | None:
        """Delete the saved search ``number`` and return it; None if the user has no saved search with this number."""
        return await self._store.saved_searches.remove(self._jid, number)

    async def share(self, name: str, body: bytes, media_type: str) -> str | None:
        """Upload a file to the XMPP server and return its URL. Raises UploadRefused.

        Returns None if the server has no upload service.
        """
        self._on_slow_request()
        return await self._services.uploads.share(name, body, media_type)

    async def import_feeds(self, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Queue feeds to which to subscribe the user; the user gets a message when the import has finished."""
        await self._services.opml_importer.add(self._jid, feeds)

    async def accept_invitation(self, code: str) -> bool:
        """Redeem an invitation code, and return whether it was valid."""
        return await self._services.access.redeem_code(self._jid, code)

    async def forget_everything(self) -> int:
        """Delete all data of the user, except restrictions that admins have set.

        Returns the number of days for which the restrictions are kept, or 0 if there are none.
        """
        await self._services.opml_importer.stop(self._jid)
        async with self._services.delivery.pause_user(self._jid):
            await self._services.delivery.remove_contact(self._jid)
            is_restricted = await self._store.erasure.erase(self._jid)
            self._services.delivery.forget_user(self._jid)
        return RESTRICTIONS_KEPT_DAYS if is_restricted else 0


class DryRun(ReadRequests):
    """The requests of one user in a dry run: they change nothing.

    ``effects`` lists, in English sentences, the changes that the requests would make.
    """

    def __init__(self, services: BotServices, jid: str, language: str, max_subscriptions: int | None) -> None:
        """Create the requests of the user ``jid``; ``max_subscriptions`` is a limit set by an admin, or None."""
        super().__init__(services, jid, language, max_subscriptions)
        self.effects: list[str] = []
        self._probed: dict[ChannelId, Channel] = {}

    async def use_new_url_allowance(self) -> bool:
        """Return True: a dry run does not count new URLs."""
        return True

    async def probe(self, url: str, *, as_page: bool) -> ProbeReply:
        """Let a worker fetch a canonical URL without creating a channel, and return what it found."""
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
        """Return the channels among ``cids`` that are not paused. Nothing is paused."""
        subscriptions = await self._store.subscriptions.of_user(self._jid)
        awake = [each.channel for each in subscriptions if each.channel in cids and each.paused_version is None]
        self.effects.append(f"Pause {len(awake):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return awake

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Return the paused channels among ``cids``, each with the number of its versions since it was paused.

        With ``watches``, saved searches count as paused.
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
                "You already have {most} saved searches, the maximum. `unwatch #n` makes room.",
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
        """Record the upload as an effect, and return None as for a server without an upload service."""
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


Requests = RequestHandler | DryRun
"""The requests that dialogues make; mypy checks that both handlers have every method."""

_AND_WATCHES = ", and the saved searches"


async def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _name(channel: Channel | None) -> str:
    return (channel.title or channel.url) if channel else "a removed channel"


def subscribed_channel(
    subscription: Subscription, channel: Channel, preferences: PreferencesByNumber
) -> SubscribedChannel:
    """Return a subscription together with its channel.

    The channel's title is the user's own title if the user has set one. The channel counts as muted if ``preferences``
    mute this subscription or all.
    """
    own = preferences.get(subscription.number, NO_PREFERENCES)
    channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    muted = own.muted or preferences.get(FOR_ALL, NO_PREFERENCES).muted
    return SubscribedChannel(subscription.number, channel, paused=subscription.paused_version is not None, muted=muted)
