"""The read-only requests that dialogues make for one user.

The handlers in :mod:`bots.dialogue.request_handler` and :mod:`bots.dialogue.dry_run` add the requests that write.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from bots.dialogue.bot_services import BotServices
from bots.i18n.translator import get_translator
from bots.pubsub.atom_items import node_uri
from bots.replies.formatting import SubscribedChannel
from service.corona.optimizer.poll_explanation import PollExplanation
from service.discovery.discover_listings import DiscoverAnswer, DiscoverOrder
from service.discovery.queries.query import Query, SearchAnswer, SearchHit
from service.discovery.queries.saved_searches import SavedSearch
from service.feeds.canonical_urls import host_of, protected_url
from service.feeds.opml_import import ImportProgress
from service.feeds.opml_writer import OpmlDocument
from service.model import Channel, ChannelId, Subscription
from service.store.client.keys import user_id
from service.store.delivery.outbox import Batch, MessageId, SentMessage
from service.store.delivery.webhooks import Webhook
from service.users.preferences import NO_PREFERENCES, PreferencesByNumber, is_muted
from service.users.user_settings import UserSettings


class MessageReferences(msgspec.Struct, frozen=True):
    """The channels that a message of the bot is about, and the saved searches that caused it to be sent.

    ``watches`` contains the numbers of the saved searches.
    """

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]


class ReadRequests:
    """Handles the requests of one user that only read data, such as searching or listing subscriptions.

    Each method may raise a CoronetError, for example if the store or a worker does not respond.
    """

    def __init__(
        self,
        services: BotServices,
        jid: str,
        language: str = "",
        max_subscriptions: int | None = None,
        on_slow_request: Callable[[], None] | None = None,
        *,
        room_nick: str = "",
    ) -> None:
        """Create the request handler for the user ``jid``, who gets replies in ``language`` (RFC 5646).

        ``max_subscriptions`` is the limit that an admin has set for the user, or None for the default limit.
        ``on_slow_request`` is called before requests that can take seconds. ``room_nick`` is the bot's nick if the user
        is a room, in which commands begin with this nick; otherwise "".
        """
        self.translator = get_translator(language)
        self.settings = services.settings
        self.room_nick = room_nick
        self.is_room = jid in services.xmpp.rooms
        self.max_subscriptions = (
            services.settings.max_subscriptions_per_user if max_subscriptions is None else max_subscriptions
        )
        self._services = services
        self._store = services.store
        self._jid = jid
        self._uid = user_id(jid)
        self._on_slow_request = on_slow_request or (lambda: None)

    def own_url(self, url: str) -> str:
        """Return the URL of the channel that is fetched from the canonical ``url`` with the user's own credential."""
        return protected_url(url, self._uid)

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
        """Return how often a channel is polled, and why.

        Raises HostBlocked if an admin has blocked the channel's host, AssignmentPending if the worker that owns the
        channel has not planned its polls yet, and NoWorker if no worker responds.
        """
        channel = await self._store.channels.get(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        return await self._store.worker_requests.explain(cid)

    async def pubsub_uri(self, cid: ChannelId) -> str:
        """Return the ``xmpp:`` URI of the channel's pubsub node, or "" if it has none."""
        service = self.settings.pubsub_service
        position = (await self._store.pubsub_nodes.positions(service, [cid])).get(cid) if service else None
        return node_uri(service, cid) if position is not None and position.version else ""

    async def public_feed_url(self, cid: ChannelId) -> str:
        """Return the URL of the channel's Atom feed for everybody, or "" if the channel is not public."""
        public = await self._services.search.filter_public([cid])
        return f"{self.settings.console_public_url.rstrip('/')}/channels/{cid}.atom" if cid in public else ""

    async def webhook(self) -> tuple[Webhook | None, int]:
        """Return (webhook, count): the user's webhook, or None, and how many items wait for it."""
        (waiting,) = await self._store.webhooks.queue_lengths([self._uid])
        return await self._store.webhooks.get(self._uid), waiting

    async def health(self, cids: tuple[ChannelId, ...]) -> tuple[int, dict[ChannelId, tuple[str, float]]]:
        """Return how many workers are running, and which of the channels ``cids`` currently cannot be polled.

        The second element of the result maps the id of each of these channels to a pair: the outcome of its last poll
        ("" if unknown), and the Unix time since which its polls have been failing.
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
        """Map each subscription number to the user's preferences for it; ``FOR_ALL`` stands for all subscriptions."""
        return (await self._store.preferences.of_users([self._uid]))[0]

    async def search(self, query: Query) -> SearchAnswer:
        """Return the channels or entries that match a query.

        Private channels to which the user is subscribed come first. Their words are compared with corrected words of
        the query only if no channel matches the query as it was written. Raises CellsUnavailable if the cells that
        store the search index change too often during the search.
        """
        search, language = self._services.search, (await self.user_settings()).effective_language
        own, public = await asyncio.gather(search.find_own(self._jid, query), search.find(query, language))
        is_found_as_written = not public.corrections and any(not hit.lacks_words for hit in public.hits)
        if not own.hits and not is_found_as_written:
            own = await search.find_own(self._jid, query, corrects=True)
        hits = self._without_small_counts((*own.hits, *public.hits))
        has_more = public.has_more or len(hits) > query.limit
        return SearchAnswer(hits[: query.limit], own.corrections if own.hits else public.corrections, has_more)

    async def discover(self, order: DiscoverOrder, language: str, topic: str, limit: int) -> DiscoverAnswer:
        """Return up to ``limit`` public channels, sorted by ``order``.

        If ``language`` or ``topic`` is not "", return only channels in this language or with this topic. Raises
        BadQuery for an invalid language or topic. Raises CellsUnavailable if the cells that store the search index
        change too often during the search.
        """
        answer = await self._services.search.discover(order, language, topic, limit)
        return msgspec.structs.replace(answer, hits=self._without_small_counts(answer.hits))

    def _without_small_counts(self, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
        """Return ``hits`` with 0 in place of each subscriber count that is too small to be disclosed."""
        least = self.settings.public_from_subscribers
        return tuple(hit if hit.subscribers >= least else msgspec.structs.replace(hit, subscribers=0) for hit in hits)

    async def watches(self) -> tuple[SavedSearch, ...]:
        """Return the user's saved searches in the order of their numbers."""
        return tuple(await self._store.saved_searches.of_user(self._jid))

    async def import_progress(self) -> ImportProgress | None:
        """Return how far the user's import of a list is, or None if there is none."""
        return await self._store.user_imports.progress(self._uid)

    async def read_list(self, url: str) -> OpmlDocument:
        """Return the OPML list at a canonical URL.

        A worker fetches the list, unless it is a file on the XMPP server, which the bot reads itself. Raises a
        CoronetError if the list cannot be fetched or parsed, or if no worker replies.
        """
        self._on_slow_request()
        if self._services.uploads.files.is_own(url):
            return await self._services.opml_parser_client.read(lambda: self._services.uploads.files.read(url))
        return await self._store.worker_requests.outline(url)

    async def read_list_text(self, text: str) -> OpmlDocument:
        """Parse ``text`` as an OPML list."""
        self._on_slow_request()
        return await self._services.opml_parser_client.read(lambda: _encoded(text))

    async def message_references(self, message_id: MessageId) -> MessageReferences | None:
        """Return the channels that a message of the bot is about, and the saved searches that caused it to be sent.

        Return None if the message is unknown, or if it refers to neither channels nor saved searches.
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


async def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def subscribed_channel(
    subscription: Subscription, channel: Channel, preferences: PreferencesByNumber
) -> SubscribedChannel:
    """Combine a subscription with its channel.

    If the user has set a title for the channel, it replaces the channel's own title. The channel counts as muted if
    ``preferences`` mute this subscription, its folder, or all subscriptions.
    """
    own = preferences.get(subscription.number, NO_PREFERENCES)
    channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    muted, paused = is_muted(preferences, subscription.number), subscription.paused_version is not None
    return SubscribedChannel(subscription.number, channel, paused=paused, muted=muted, folder=own.folder)
